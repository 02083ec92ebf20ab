"""The language model against the reference: logits, and every drawn id under a shared seed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from legato.errors import CheckpointError
from legato.families.glm_tts.lm import RAS, TOP_K, GlmLM, GlmSpeech, LengthBounds, PromptIds, speech_prompt
from legato.families.glm_tts.tokenizer import SpecialIds
from legato.families.glm_tts.weights import load_lm
from legato.lm import sampler
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.protocols import Prompt
from legato.types import Sampling, UtteranceId

from .glm_inputs import LM_CASES
from .tiny import END_OF_AUDIO, FIRST_SPEECH, numbers


@pytest.fixture(scope="module")
def lm(checkpoint: Path) -> GlmLM:
    net = load_lm(checkpoint / "llm")
    net.freeze(4)
    return net


def stage(lm: GlmLM, tokens_per_step: int = 512) -> LMStage:
    return LMStage(lm, pages=200, page_size=16, limits=SchedulerLimits(tokens_per_step, 16, 32), backend="tiled")


def speak(stage: LMStage, prompts: list[Prompt]) -> list[list[int]]:
    """All codec ids of the prompts, spoken side by side."""
    spoken: dict[UtteranceId, list[int]] = {prompt.utterance: [] for prompt in prompts}
    for prompt in prompts:
        stage.add(prompt)
    while (batch := stage.plan(stage.ready())) is not None:
        for tokens in stage.commit(batch, stage.run(batch)):
            spoken[tokens.utterance] += tokens.ids
    return list(spoken.values())


def prompt(special: SpecialIds, case: int, seed: int, sampling: Sampling, *, audio_only: bool = False) -> Prompt:
    ids = PromptIds(*LM_CASES[case])
    return speech_prompt(UtteranceId(case, seed), ids, special, seed, sampling, audio_only=audio_only)


def test_first_logits_equal_reference(lm: GlmLM, special: SpecialIds, golden: dict[str, Tensor]) -> None:
    for case in range(len(LM_CASES)):
        lms = stage(lm)
        lms.add(prompt(special, case, 0, RAS))
        (logits,) = lms.run(lms.plan(lms.ready()) or []).values()
        assert (logits[0] - golden[f"lm.{case}.logits"]).abs().max() < 1e-5


@pytest.mark.parametrize("case", range(len(LM_CASES)))
@pytest.mark.parametrize(("name", "sampling"), [("ras", RAS), ("topk", TOP_K)])
def test_tokens_equal_reference(
    lm: GlmLM, special: SpecialIds, golden: dict[str, Tensor], case: int, name: str, sampling: Sampling
) -> None:
    for seed in (0, 1, 2):
        (spoken,) = speak(stage(lm), [prompt(special, case, seed, sampling)])
        assert spoken == golden[f"lm.{case}.{name}.{seed}"].tolist()


def test_tokens_do_not_depend_on_what_is_beside_them(lm: GlmLM, special: SpecialIds, golden: dict[str, Tensor]) -> None:
    """All at once, prompts cut into short prefills: the ids of each alone."""
    cases = [(case, seed) for case in range(len(LM_CASES)) for seed in (0, 1, 2)]
    together = speak(stage(lm, tokens_per_step=12), [prompt(special, case, seed, RAS) for case, seed in cases])
    assert together == [golden[f"lm.{case}.ras.{seed}"].tolist() for case, seed in cases]


def test_engine_prompts_yield_codec_ids_only(lm: GlmLM, special: SpecialIds) -> None:
    (spoken,) = speak(stage(lm), [prompt(special, 0, 5, RAS, audio_only=True)])
    bounds = LengthBounds.of_text(len(LM_CASES[0][1]))
    assert bounds.least <= len(spoken) <= bounds.most
    assert all(0 <= code < special.speech_tokens for code in spoken)


def test_layout_of_a_prompt(special: SpecialIds) -> None:
    ids = PromptIds(prompt_text_ids=[7, 8], text_ids=[9], speech_ids=[0, 1], speaker_ids=[5])
    first, boa = special.first_speech, special.begin_of_audio
    assert ids.layout(special) == (5, 7, 8, 9, boa, first, first + 1)


def test_no_end_before_the_least_length(special: SpecialIds) -> None:
    speech = GlmSpeech(special, LengthBounds(least=1, most=3), audio_only=False)
    logits = torch.zeros(512)
    assert speech.constrain(logits.clone())[END_OF_AUDIO] == -torch.inf
    assert not speech.accept(FIRST_SPEECH).final
    assert speech.constrain(logits.clone())[END_OF_AUDIO] > -torch.inf
    assert speech.accept(END_OF_AUDIO).final


def test_longest_utterance_ends_without_a_mark(special: SpecialIds) -> None:
    speech = GlmSpeech(special, LengthBounds(least=0, most=2))
    assert [speech.accept(FIRST_SPEECH).final for _ in range(2)] == [False, True]


def test_adapter_is_merged(checkpoint: Path, lm: GlmLM, tmp_path: Path) -> None:
    """Queries get scale · up · down more; a head saved whole is no longer the embedding."""
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    down, up = numbers("down", (2, 64)), numbers("up", (64, 2))
    head = numbers("head", (512, 64))
    saved = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up, "base_model.model.lm_head.weight": head}
    save_file(saved, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 4}')
    adapted = load_lm(checkpoint / "llm", tmp_path)
    before, after = (net.state_dict()["decoder.layers.1.qkv.weight"] for net in (lm, adapted))
    torch.testing.assert_close(after[:64], before[:64] + 2 * up @ down)
    assert torch.equal(after[64:], before[64:])
    assert torch.equal(adapted.head.weight, head)
    assert torch.equal(adapted.embedding.weight, lm.embedding.weight)


def test_adapter_of_another_size_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    saved = {f"{name}.lora_A.weight": torch.zeros(2, 65), f"{name}.lora_B.weight": torch.zeros(64, 2)}
    save_file(saved, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 4}')
    with pytest.raises(CheckpointError, match=r"q_proj\.lora_A\.weight does not fit"):
        load_lm(checkpoint / "llm", tmp_path)


def test_bfloat16_is_near(checkpoint: Path, special: SpecialIds, golden: dict[str, Tensor]) -> None:
    net = load_lm(checkpoint / "llm").to(torch.bfloat16)
    net.freeze(0)
    lms = LMStage(net, pages=20, page_size=16, limits=SchedulerLimits(512, 16, 32), backend="sdpa")
    lms.add(prompt(special, 0, 0, RAS))
    (logits,) = lms.run(lms.plan(lms.ready()) or []).values()
    wanted = golden["lm.0.logits"]
    assert logits.dtype == torch.float32
    assert (logits[0] - wanted).abs().mean() < 0.05 * wanted.abs().mean()


def test_nucleus_is_the_front_of_a_whole_sort() -> None:
    """Also where many probabilities are equal: the lower id comes first."""
    for seed in range(20):
        logits = torch.randn(300, generator=torch.Generator().manual_seed(seed)).mul(2).round()
        probabilities = logits.softmax(-1)
        ranked, ids = probabilities.sort(descending=True, stable=True)
        for top_k in (1, 25, 299):
            found = sampler._ranked(probabilities, top_k)
            assert torch.equal(found[0], ranked[:top_k]) and torch.equal(found[1], ids[:top_k])
