"""Each trainer learns the chords, and what it trains is what will run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from legato.families.piccolo.config import ADVANCE, PiccoloConfig
from legato.families.piccolo.flow import PiccoloFlow
from legato.families.piccolo.lm import TextSynchronous
from legato.families.piccolo.said import unknown
from legato.families.piccolo.voices import PiccoloVoice
from legato.nn.attention import PagedKV, Span, attention_step
from legato.nn.early_vocos import EarlyVocos
from legato.protocols import FlowWindow
from legato.training.codec import Codec, CodecSettings, CodecTask
from legato.training.corpus import Corpus
from legato.training.flow import FlowTask, FlowTraining, learning_flow
from legato.training.lm import IGNORED, LMSettings, LMTask, learning_lm, phoneme_table, prompted, stream
from legato.training.loop import Task
from legato.training.vocoder import VocoderSettings, VocoderTask
from legato.types import UtteranceId, Voice


def falls(task: Task, steps: int, name: str, by: float) -> None:
    """Train, and see the held-out loss fall to `by` of what it was."""
    before = task.evaluate()[name]
    for _ in range(steps):
        task.step(1.0)
    after = task.evaluate()[name]
    assert after < by * before, f"{name}: {before:.3f} -> {after:.3f}"


def test_codec_learns(corpus: Corpus, config: PiccoloConfig) -> None:
    assert config.codec is not None
    settings = CodecSettings(batch=6, frames=48, decoder_blocks=(1, 1), head_width=32, rate=3e-3)
    task = CodecTask(Codec(config.codec, 180, settings), corpus, settings)
    untrained = task.evaluate()["mel"]
    falls(task, 40, "phoneme", 0.8)
    assert task.evaluate()["mel"] < 0.9 * untrained


def test_lm_learns(corpus: Corpus, config: PiccoloConfig) -> None:
    task = LMTask(learning_lm(config), config, corpus, LMSettings(positions=1200, rate=3e-3))
    falls(task, 30, "loss", 0.6)


def test_flow_learns(corpus: Corpus, config: PiccoloConfig) -> None:
    settings = FlowTraining(batch=4, blocks=4, rate=3e-3, speaker_frames=40, average=0.5)
    falls(FlowTask(learning_flow(config), config, corpus, settings), 40, "velocity", 0.8)


def test_vocoder_learns(corpus: Corpus, config: PiccoloConfig) -> None:
    assert not isinstance(config.vocoder, type(None))
    torch.manual_seed(0)
    settings = VocoderSettings(
        batch=3, frames=12, alone_steps=25, periods=(2,), ffts=(256,), channels=(4, 4), spectrum_width=2
    )
    task = VocoderTask(EarlyVocos(config.vocoder), corpus, settings)  # type: ignore[arg-type]
    falls(task, 25, "mel", 0.9)
    judged = [task.step(1.0) for _ in range(3)]
    assert all(set(losses) == {"mel", "judges", "fooling", "features"} for losses in judged)


@pytest.mark.parametrize("prompt", [0, 25])
def test_stream_is_what_the_host_will_feed(corpus: Corpus, config: PiccoloConfig, prompt: int) -> None:
    """Sampling the targets one after another makes the continuation feed the very ids of the stream."""
    spoken, codes = corpus.utterances[4], corpus.codes(4)
    learned = prompted(stream(spoken, codes, config), corpus.codes(6)[:prompt], config)
    host = TextSynchronous(spoken.phonemes, config, None)
    start = int((learned.targets == IGNORED).sum()) + 1
    head = (*config.language_ids("en"), *spoken.phonemes, config.begin_of_audio, *spoken.phonemes[: host.given])
    assert learned.ids[:prompt].tolist() == [config.first_code_id + code for code in corpus.codes(6)[:prompt]]
    assert tuple(learned.ids[prompt:start]) == head
    fed: list[int] = []
    for target in learned.targets[start - 1 :]:
        step = host.accept(int(target))
        fed += step.feed
    assert step.final
    assert fed == learned.ids[start:].tolist()
    assert int((learned.targets == ADVANCE).sum()) == len(spoken.phonemes) - config.lead_phonemes


def test_lm_learns_in_the_net_that_runs(corpus: Corpus, config: PiccoloConfig) -> None:
    """Teacher-forced hidden states of padded sequences equal those of the paged steps."""
    task = LMTask(learning_lm(config), config, corpus, LMSettings())
    net = task.learners["lm"].net.eval()
    streams = [stream(corpus.utterances[i], corpus.codes(i), config) for i in (0, 1)]
    seen: list[torch.Tensor] = []
    logits = net.logits
    net.logits = lambda hidden: seen.append(hidden) or logits(hidden)  # type: ignore[assignment, func-returns-value]
    with torch.no_grad():
        task._losses(streams, dropout=0.0)
        ids = torch.from_numpy(streams[0].ids)
        cache = PagedKV(1 + -(-len(ids) // 16), 16, net.kv_shape)
        span = Span(0, 0, len(ids), tuple(range(1, 1 + -(-len(ids) // 16))))
        hidden = net(net.embed(ids, None), attention_step("sdpa", cache, [span], len(ids)))
    wanted = torch.from_numpy(streams[0].targets) != IGNORED
    torch.testing.assert_close(seen[0][: int(wanted.sum())], hidden[wanted], atol=1e-5, rtol=1e-4)


def test_flow_learns_in_the_net_that_runs(config: PiccoloConfig) -> None:
    """The velocity of the first step, as trained, moves a window as `advance` does: guidance 0, a voice's past."""
    learning = learning_flow(config)
    for parameter in learning.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    running = PiccoloFlow(config)
    running.load_state_dict(learning.state_dict())
    object.__setattr__(running.config, "guidance", 0.0)
    running.eval().requires_grad_(False).prepare()
    block, tokens = config.dit.block_frames, torch.arange(16) % config.codes
    mel, speaker = torch.randn(2 * block, config.mel_bins), torch.randn(config.speaker_width)
    mel_codes = tuple(range(16))
    voice = Voice("v", "", ("en",), PiccoloVoice((1, 2), mel, mel_codes, speaker))
    noise = torch.randn(2 * block, config.mel_bins)
    window = FlowWindow(UtteranceId(0, 0), 0, 2 * block, tokens, 0, noise, voice, None, True)
    with torch.inference_mode():
        running.open(window)
        running.advance([window])
    past = running._reference(voice.facts)
    whole = torch.cat([past.noise.flatten(0, 1), noise])[None]
    told = torch.tensor(mel_codes) + unknown(config.phonemes_around)
    features = torch.cat([learning.features(part[None], speaker[None]) for part in (told, tokens)], 1)
    settings = FlowTraining(batch=1, blocks=4, unseen=0.0)
    task = FlowTask.__new__(FlowTask)
    task.config, task.settings, task.device = config, settings, torch.device("cpu")
    near = task._neighbours(1, torch.Generator())
    near.after[1] = -1  # the past is computed before what follows it is known
    x = (learning.dit.state_inputs(whole) + learning.dit.condition(features)).unflatten(1, (-1, block)).flatten(0, 1)
    velocity, _ = learning.dit(
        x, learning.dit.modulations(torch.zeros(1)), torch.zeros(4, dtype=torch.long), near, [None] * 2
    )
    dt = running._grid[1] - running._grid[0]
    torch.testing.assert_close(window.state.x, noise.unflatten(0, (2, block)) + dt * velocity[2:], atol=1e-4, rtol=1e-4)


def test_phoneme_table_tells_the_codes(corpus: Corpus, config: PiccoloConfig) -> None:
    table = phoneme_table(corpus, 180, config.codes)
    spoken, codes = corpus.utterances[2], corpus.codes(2)
    at = np.asarray(spoken.phonemes)[spoken.phoneme_at((np.arange(len(codes)) + 0.5) * 0.04)]
    assert table[at, codes].mean() > table[at].mean() + 0.3
