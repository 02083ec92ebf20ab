"""The talker beside the thinker: codes equal to the reference's, whatever is late, and ends of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from legato.errors import CheckpointError, PromptTooLong
from legato.families.qwen2_5_omni.config import read_config
from legato.families.qwen2_5_omni.frontend import Reading
from legato.families.qwen2_5_omni.handover import Handover
from legato.families.qwen2_5_omni.speech import Drawing
from legato.families.qwen2_5_omni.talker import Talker, load_talker, narrowed
from legato.families.qwen2_5_omni.thinker import Thinker
from legato.families.qwen2_5_omni.weights import Tensors
from legato.protocols import Prompt, Step
from legato.types import Sampling, UtteranceId

from .conftest import NAMES, ROW_TILE
from .drive import stage
from .talking import GOLDEN, GREEDY, SEED, VOICES, Reply, advance, make_speech, reply, speak, talking
from .tiny import IDS


@pytest.fixture(scope="module")
def talker(checkpoint: Path, tensors: Tensors) -> Talker:
    config = read_config(checkpoint).talker
    assert config is not None
    net = load_talker(tensors, config, torch.float32)
    net.freeze(ROW_TILE)
    return net


# --- equal to the reference ---


def golden_step(prompts: dict[str, Step], name: str) -> Step:
    """The prompt the talker's golden codes belong to: for the film it ends on other words."""
    step = prompts[name]
    return replace(step, feed=(*step.feed[:-4], *GOLDEN["video.ids"][-4:].tolist())) if name == "video" else step


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["greedy", "sampled"])
def test_codes_are_the_references(
    thinker: Thinker, talker: Talker, prompts: dict[str, Step], name: str, voice: str, kind: str
) -> None:
    one = reply(make_speech(thinker, talker), golden_step(prompts, name), voice, GREEDY if kind == "greedy" else None)
    speak(thinker, talker, [one])
    assert one.codes == GOLDEN[f"{name}.{voice}.{kind}"].tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_a_reply_of_few_ids(thinker: Thinker, talker: Talker, prompts: dict[str, Step], count: int) -> None:
    one = reply(make_speech(thinker, talker), prompts["text"], "Ethan", None, tokens=count)
    speak(thinker, talker, [one])
    assert len(one.writing.said) == count
    assert one.codes == GOLDEN[f"text.Ethan.first{count}"].tolist()


def test_the_writer_ends_by_itself(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    said = GOLDEN["text.Chelsie.early_end.reply"].tolist()
    one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", None, end=said[-1])
    speak(thinker, talker, [one])
    assert one.writing.said == said
    assert one.codes == GOLDEN["text.Chelsie.early_end"].tolist()


def test_a_given_reply_is_spoken_like_a_drawn_one(
    thinker: Thinker, talker: Talker, prompts: dict[str, Step], gold: dict[str, Tensor]
) -> None:
    """The thinker's own reply, given to it to be read aloud: the codes of the reply."""
    step, said = prompts["text"], gold["text.reply"].tolist()
    length = len(step.feed)
    assert step.places is not None
    handover = Handover(length)
    handover.announce(step.places, step.feed)
    handover.close_prompt(length)
    ids = (*step.feed, *said[:-1])
    writer = Prompt(
        UtteranceId(0, 0), ids, Reading(handover), Sampling(temperature=0), 0, 400,
        places=[(at,) * 3 for at in range(len(ids))], relay=handover,
    )  # fmt: skip
    spoken = make_speech(thinker, talker).follow(writer.utterance, handover, VOICES["Chelsie"], Drawing(None, SEED))
    writing, speaking, codes = stage(thinker, budget=16), talking(talker), []
    writing.add(writer)
    speaking.add(spoken)
    while len(speaking):
        assert not advance(writing)[:-1]
        codes += [code for tokens in advance(speaking) for code in tokens.ids]
    assert codes == GOLDEN["text.Chelsie.sampled"].tolist()


def test_a_long_reply(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    one = reply(make_speech(thinker, talker, max_codes=300), prompts["text"], "Chelsie", None)
    speak(thinker, talker, [one])
    assert one.codes == GOLDEN["text.Chelsie.long"].tolist()


# --- late, split, in company ---


@pytest.mark.parametrize("ratio", [0.05, 0.3, 2.0, 40.0])
def test_it_waits_and_never_pads(thinker: Thinker, talker: Talker, prompts: dict[str, Step], ratio: float) -> None:
    """A slow thinker delays codes and changes none."""
    one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", None)
    speak(thinker, talker, [one], ratio=ratio)
    assert one.codes == GOLDEN["text.Chelsie.sampled"].tolist()


@pytest.mark.parametrize("cuts", [[1], [7, 19, 20], list(range(1, 40))])
def test_the_prompt_in_parts(thinker: Thinker, talker: Talker, prompts: dict[str, Step], cuts: list[int]) -> None:
    one = reply(make_speech(thinker, talker), prompts["text"], "Ethan", None, cuts=cuts)
    speak(thinker, talker, [one], budget=7)
    assert one.codes == GOLDEN["text.Ethan.sampled"].tolist()


def test_ten_at_once(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    """Both voices, all media, greedy and drawn, side by side and short of pages: as alone."""
    speech = make_speech(thinker, talker)
    wanted, replies = [], []
    for number, (name, voice) in enumerate((name, voice) for name in NAMES for voice in VOICES):
        kind = "greedy" if number % 3 == 0 else "sampled"
        sampling = GREEDY if kind == "greedy" else None
        replies.append(reply(speech, golden_step(prompts, name), voice, sampling, number=number, cuts=[number + 3]))
        wanted.append(GOLDEN[f"{name}.{voice}.{kind}"].tolist())
    speak(thinker, talker, replies, budget=40)
    assert [one.codes for one in replies] == wanted


def test_the_first_code_comes_with_the_second_id(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", None)
    writer, speaker = stage(thinker), talking(talker)
    writer.add(one.writer)
    speaker.add(one.speech)
    written = []
    for _ in range(10):
        written += [id for tokens in advance(writer) for id in tokens.ids]
        heard = [code for _ in range(4) for tokens in advance(speaker) for code in tokens.ids]
        if heard:
            break
    assert len(written) == 2
    assert heard == GOLDEN["text.Chelsie.sampled"][: len(heard)].tolist()


def test_pages_of_the_prompt_are_shared_and_those_behind_it_are_not(
    thinker: Thinker, talker: Talker, prompts: dict[str, Step]
) -> None:
    """The same words to another voice start behind the pages of the first; 40 rows and two fill 5 pages of 8 and a bit,
    so what the voice changes lies in a page of its own."""
    speech = make_speech(thinker, talker)
    speaker = talking(talker, page_size=8)
    for number, voice in enumerate(("Chelsie", "Ethan", "Chelsie")):
        one = reply(speech, prompts["text"], voice, None, number=number)
        writer = stage(thinker)
        writer.add(one.writer)
        while len(writer):
            advance(writer)
        shared = speaker.pool.counters.shared
        speaker.add(one.speech)
        while len(speaker):
            one.codes += [code for tokens in advance(speaker) for code in tokens.ids]
        assert one.codes == GOLDEN[f"text.{voice}.sampled"].tolist()
        assert (speaker.pool.counters.shared - shared) in ((4, 5) if number else (0,))


def keys_behind_the_prompt(one: Reply) -> list[int]:
    """What stands in a prefix cache for the rows of the voice and the reply."""
    handover, talker = one.writing.handover, one.speech.continuation
    handover.announce([(0, 0, 0)], [5])
    handover.close_prompt(1)
    handover.put(0, torch.zeros(4, 64))
    prompt, closing = talker.poll(), talker.poll()
    assert prompt is not None and closing is not None and prompt.keys == (5,) and not closing.more
    steps = [closing, *(talker.accept(code) for code in (1, 2))]
    return [key for step in steps for key in step.keys or ()]


def test_rows_behind_the_prompt_are_never_shared(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    """They hold the voice and what was drawn: no two replies have a key in common, and none is an id."""
    speech = make_speech(thinker, talker)
    keys = [
        keys_behind_the_prompt(reply(speech, prompts["text"], voice, None, number=number))
        for number, voice in enumerate(("Chelsie", "Ethan", "Chelsie"))
    ]
    found = [key for of_one in keys for key in of_one]
    assert len(set(found)) == len(found) == 12
    assert all(-(2**63) <= key < 0 for key in found)


def test_cancelling_leaves_nothing(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", None)
    writer, speaker = stage(thinker), talking(talker)
    writer.add(one.writer)
    speaker.add(one.speech)
    for _ in range(6):
        advance(writer)
        advance(speaker)
    speaker.drop(one.id)
    speaker.pool.forget_prefixes()
    assert not len(speaker) and not speaker.pool.used


# --- ends ---


def test_a_writer_that_says_nothing_is_not_heard(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    """Its first id ends the reply (the reference breaks there): no code, and an end."""
    for sampling in (GREEDY, None):
        one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", sampling, tokens=1)
        speak(thinker, talker, [one])
        assert one.codes == []


def test_either_end_code_ends(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    for end in (IDS.codec_pad, IDS.codec_end):
        one = reply(make_speech(thinker, talker), prompts["text"], "Chelsie", None)
        step = one.speech.continuation.accept(end)
        assert step == Step(final=True)


def test_codes_without_a_sound_are_not_drawn(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    """In the reference they can be, and break its flow; allowed here, they sound like code 0."""
    logits = torch.zeros(104)
    logits[90:] = 20.0
    for only, last in ((True, 89), (False, 89)):
        speech = make_speech(thinker, talker, last_code=last, known_codes_only=only)
        continuation = reply(speech, prompts["text"], "Chelsie", GREEDY).speech.continuation
        possible = continuation.constrain(logits.clone()).isfinite().nonzero().flatten().tolist()
        ends = [IDS.codec_pad, IDS.codec_end]
        assert IDS.codec_start not in possible
        if only:
            assert possible == [*range(90), *ends]
        else:
            assert set(possible) == set(range(104)) - {IDS.codec_start}
            assert continuation.accept(95).emit == 0


def test_max_codes_ends_with_the_last_code_kept(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    one = reply(make_speech(thinker, talker, max_codes=5), prompts["text"], "Chelsie", None)
    speak(thinker, talker, [one])
    assert one.codes == GOLDEN["text.Chelsie.sampled"][:5].tolist()
    assert one.speech.max_positions == 40 + 2 + 5


def test_the_models_context_limits_the_codes(thinker: Thinker, talker: Talker, prompts: dict[str, Step]) -> None:
    speech = make_speech(thinker, talker)
    speech.context = 50
    one = reply(speech, prompts["text"], "Chelsie", None)
    speak(thinker, talker, [one])
    assert one.codes == GOLDEN["text.Chelsie.sampled"][:8].tolist()
    assert one.speech.max_positions == 50
    speech.context = 42
    with pytest.raises(PromptTooLong, match="42 of 42 positions"):
        reply(speech, prompts["text"], "Chelsie", None)


# --- drawing ---


def test_narrowing_keeps_the_fewest_that_reach_top_p() -> None:
    probabilities = torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2])
    kept = narrowed(probabilities.log(), Sampling(top_p=0.8)).isfinite().tolist()
    assert kept == [False, True, False, True, True]
    kept = narrowed(probabilities.log(), Sampling(top_k=2)).isfinite().tolist()
    assert kept == [False, True, False, True, False]
    kept = narrowed(probabilities.log(), Sampling(top_p=1e-9)).isfinite().tolist()
    assert kept == [False, True, False, False, False]


def test_bad_shapes_are_named(checkpoint: Path, tensors: Tensors) -> None:
    config = read_config(checkpoint).talker
    assert config is not None
    with pytest.raises(CheckpointError, match="head.weight is"):
        load_talker(tensors, replace(config, vocabulary=105), torch.float32)
