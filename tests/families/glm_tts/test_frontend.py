"""Prompts: layout, bounds, voices, phoneme mode, marks in the text, and what of the past goes in front."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from legato.errors import RequestError, UnsupportedFeature
from legato.families.glm_tts.frontend import GlmFrontend, Said, remembered
from legato.families.glm_tts.phonemes import Phonemes, known_phonemes
from legato.families.glm_tts.text_front import TextFront
from legato.families.glm_tts.tokenizer import Tokenizer, read_tokenizer, special_ids
from legato.families.glm_tts.voices import GlmVoice
from legato.types import Pronunciation, Utterance, UtteranceId, Voice

from .tiny_frontend import write_text_tokenizer

PHONEMES = "B P M F D T N L G K H J Q X ZH CH SH R Z C S ANG2 ANG3 ING2 IN2 ONG2 VE4 E4 E5 ENG2 ING4 UO2 I3 OU4"
HISTORY = json.loads((Path(__file__).parent / "data_frontend" / "reference_history.json").read_text())


class AsWritten:
    """No number rules."""

    def chinese(self, text: str) -> str:
        return text

    def english(self, text: str) -> str:
        return text


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return read_tokenizer(write_text_tokenizer(tmp_path_factory.mktemp("tokenizer"), phonemes=PHONEMES))


def frontend(tokenizer: Tokenizer, **options: Any) -> GlmFrontend:
    return GlmFrontend(tokenizer, special_ids(tokenizer, 5000), TextFront(AsWritten()), **options)


@pytest.fixture(scope="module")
def plain(tokenizer: Tokenizer) -> GlmFrontend:
    return frontend(tokenizer)


@pytest.fixture
def voice(plain: GlmFrontend) -> Voice:
    ids = plain.voice_ids("你好")
    return Voice("anna", facts=GlmVoice("你好", ids, (5, 6, 7), torch.zeros(6, 80), torch.zeros(192), 24000))


def utterance(text: str, voice: Voice, history: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> Utterance:
    return Utterance(UtteranceId(1, len(history)), text, voice, seed=3, history=history)


# --- layout ---


def test_prompt_is_laid_out_as_in_the_release(plain: GlmFrontend, voice: Voice) -> None:
    prompt = plain.prompt(utterance("今天天气很好", voice))
    assert prompt is not None
    special, encode = plain.special, plain.tokenizer.encode
    text = encode("今天天气很好。")
    speech = [special.first_speech + id for id in (5, 6, 7)]
    assert list(prompt.token_ids) == [*encode("你好。 "), *text, special.begin_of_audio, *speech]
    assert prompt.shared_tokens == len(encode("你好。 "))
    assert prompt.max_positions == len(prompt.token_ids) + 20 * len(text)
    assert (prompt.sampling.top_k, prompt.sampling.top_p, prompt.sampling.ras_window) == (25, 0.8, 10)
    assert prompt.seed == 3


def test_end_has_no_chance_before_two_tokens_for_each_text_id(plain: GlmFrontend, voice: Voice) -> None:
    prompt = plain.prompt(utterance("好", voice))
    assert prompt is not None
    text_ids = len(plain.tokenizer.encode("好。"))
    end = plain.special.end_of_audio
    for count in range(2 * text_ids + 1):
        scores = prompt.continuation.constrain(torch.zeros(2000))
        assert bool(torch.isinf(scores[end])) == (count < 2 * text_ids)
        assert not prompt.continuation.accept(plain.special.first_speech + count).final
    assert prompt.continuation.accept(end).final


def test_prompt_ends_at_twenty_tokens_for_each_text_id(plain: GlmFrontend, voice: Voice) -> None:
    prompt = plain.prompt(utterance("好", voice))
    assert prompt is not None
    most = 20 * len(plain.tokenizer.encode("好。"))
    steps = [prompt.continuation.accept(plain.special.first_speech) for _ in range(most)]
    assert [step.final for step in steps] == [False] * (most - 1) + [True]


@pytest.mark.parametrize("text", ["", "   ", "……", "😀"])
def test_nothing_to_say_is_no_prompt(text: str, plain: GlmFrontend, voice: Voice) -> None:
    assert plain.prompt(utterance(text, voice)) is None


def test_fine_tuned_speaker_goes_first(plain: GlmFrontend, voice: Voice) -> None:
    facts = replace(voice.facts, text_ids=(), speech_ids=(), speaker_ids=(9, 8))
    prompt = plain.prompt(utterance("好", replace(voice, facts=facts)))
    assert prompt is not None
    assert list(prompt.token_ids) == [9, 8, *plain.tokenizer.encode("好。"), plain.special.begin_of_audio]


def test_voice_of_another_model_is_refused(plain: GlmFrontend) -> None:
    with pytest.raises(RequestError, match="heart is not a voice of GLM-TTS"):
        plain.prompt(utterance("好", Voice("heart")))


# --- scripts ---


@pytest.mark.parametrize("text", ["Привет, мир", "こんにちは", "안녕하세요", "สวัสดี"])
def test_foreign_scripts_are_refused(text: str, plain: GlmFrontend) -> None:
    with pytest.raises(UnsupportedFeature, match="speaks Chinese and English; it cannot read"):
        plain.check(text)


@pytest.mark.parametrize("text", ["你好", "hello", "优の良品很好", "café", "123", "", "{行|hang2}"])
def test_chinese_and_english_pass(text: str, plain: GlmFrontend) -> None:
    plain.check(text)


# --- pronunciations ---


def test_written_pronunciation_is_followed(plain: GlmFrontend) -> None:
    assert plain.spoken("去{银行|yin2 hang2}吗？") == "去<|IN2|><|H|><|ANG2|>吗？"
    assert plain.spoken("{重|chong2}") == "<|CH|><|ONG2|>。"
    assert plain.spoken("ABC {行|hang2}!!") == "abc<|H|><|ANG2|>。"


def test_pronunciation_that_the_model_lacks_is_named(plain: GlmFrontend) -> None:
    with pytest.raises(RequestError, match=r"no phoneme ER5, of \{儿\|er5\}"):
        plain.check("花{儿|er5}")


def test_phoneme_mode_is_chosen_by_request(tokenizer: Tokenizer, voice: Voice) -> None:
    pytest.importorskip("jieba")
    tables = Phonemes(known_phonemes(tokenizer), safe="很好", replacements={"弦": "<|X|>"})
    made = frontend(tokenizer, phonemes=tables)
    modes: tuple[Pronunciation | None, ...] = (None, "text", "phonemes")
    prompts = [made.prompt(replace(utterance("弦乐很好", voice), pronunciation=mode)) for mode in modes]
    by_default, as_text, as_phonemes = (prompt.token_ids for prompt in prompts if prompt is not None)
    assert by_default == as_text != as_phonemes
    assert made.spoken("弦乐{行|hang2}很好", hybrid=True) == "<|X|><|L|><|E4|><|H|><|ANG2|>很好。"


def test_phoneme_mode_without_its_libraries_says_so(plain: GlmFrontend, voice: Voice) -> None:
    with pytest.raises(UnsupportedFeature, match="phoneme mode is not available"):
        plain.prompt(replace(utterance("好", voice), pronunciation="phonemes"))


def test_pieces_keep_their_marks_and_are_normalised_again(plain: GlmFrontend) -> None:
    text = "今天天气很好，我们一起去公园里的{银行|yin2 hang2}旁边坐一坐吧！" * 3
    pieces = plain.pieces(text)
    assert len(pieces) == 2
    assert "".join(pieces).count("{银|yin2}{行|hang2}") == 3
    assert sum(plain.spoken(piece).count("<|H|><|ANG2|>") for piece in pieces) == 3


# --- history ---


@pytest.mark.parametrize("case", HISTORY)
def test_past_is_kept_as_the_release_keeps_it(case: dict[str, Any]) -> None:
    def said(sizes: list[int]) -> Said:
        return Said((0,) * sizes[0], (0,) * sizes[1])

    past: list[Said] = []
    for sizes, expected in zip(case["said"], case["prompts"], strict=True):
        kept = remembered(said(case["voice"]), past, (0,) * sizes[0])
        text, speech = (sum(len(each) for each in column) for column in _columns(kept))
        assert [text, speech, len(kept) - 1] == expected
        past.append(said(sizes))


def _columns(kept: list[Said]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return [each.text_ids for each in kept], [each.speech_ids for each in kept]


def test_history_goes_in_front(tokenizer: Tokenizer, voice: Voice) -> None:
    made = frontend(tokenizer, continues=True)
    prompt = made.prompt(utterance("再见", voice, (("你好", (1, 2)), ("世界", (3,)))))
    assert prompt is not None
    special, encode = made.special, tokenizer.encode
    text = [*encode("你好。 "), *encode("你好。"), *encode("世界。"), *encode("再见。")]
    speech = [special.first_speech + id for id in (5, 6, 7, 1, 2, 3)]
    assert list(prompt.token_ids) == [*text, special.begin_of_audio, *speech]
    assert made.continues


def test_without_history_the_voice_alone_is_in_front(plain: GlmFrontend, voice: Voice) -> None:
    alone = plain.prompt(utterance("再见", voice))
    after = plain.prompt(utterance("再见", voice, (("你好", (1, 2)),)))
    assert alone is not None
    assert after is not None
    assert alone.token_ids == after.token_ids
    assert not plain.continues
