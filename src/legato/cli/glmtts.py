"""`legato glmtts`: GLM-TTS's own command line, on its lists and with its file names, streamed if asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

import typer

import legato
from legato.config import Config, load_config
from legato.engine import SpeechEngine
from legato.errors import Cancelled, CheckpointError, ConfigError, EmptyText, EngineError, RequestError, SpeechError
from legato.families import glm_tts
from legato.families.glm_tts.flow import GRID_TOKENS, HISTORY_TOKENS, LOOK_AHEAD_BLOCKS
from legato.families.glm_tts.frontend import GlmFrontend
from legato.protocols import LoadOptions, SpeechModel
from legato.serving.encoders import find_format
from legato.streams import SpeechStream
from legato.types import Pronunciation, SpeechRequest, Voice

from .glmtts_lines import BadLine, Line, add_record, file_hash, find_list, read_lines, read_records, sound_choices
from .options import CheckpointOption, ConfigOption, locate_checkpoint
from .outputs import FileOutput
from .terminal import FAILED, note

ADVISED_CHUNKS = (30, 60)
TOKEN_HZ = 25
CACHED_VOICES = 8
CHUNK_HELP = f"Codec tokens ({TOKEN_HZ} a second) in a chunk, a multiple of {GRID_TOKENS}. [50]"
NO_TEXT_LIMIT_CHARS = 2**31
"""`engine.max_text_chars` guards a server against its clients; here the user is the only one."""

JOBS_CPU, JOBS_GPU = 1, 8


class Live:
    """The streams of the lines being spoken, so that all can be ended at once."""

    def __init__(self) -> None:
        self._streams: set[SpeechStream] = set()
        self._ended = False
        self._lock = Lock()

    @contextmanager
    def holding(self, stream: SpeechStream) -> Iterator[None]:
        """A stream is among them for the body. Raises Cancelled when they have been ended."""
        with self._lock:
            if self._ended:
                raise Cancelled("no more lines are spoken")
            self._streams.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._streams.discard(stream)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for stream in self._streams:
                stream.cancel()


@dataclass(frozen=True)
class Speaker:
    """The engine and what every line is spoken with. `choices` are what all their samples depend on, for the record."""

    engine: SpeechEngine
    frontend: GlmFrontend
    seed: int
    streaming: bool
    phonemes: bool
    choices: dict[str, Any]
    clone: Callable[[Path, str], Voice]
    hash_of: Callable[[Path], str | None]
    recording: Lock
    live: Live

    def record(self, line: Line) -> dict[str, Any]:
        """What a finished line was made from; it is made again when this has changed."""
        return {
            "uttid": line.uttid,
            "syn_text": line.syn_text,
            "prompt_text": line.prompt_text,
            "prompt_speech": str(line.prompt_speech),
            "prompt_sha256": self.hash_of(line.prompt_speech),
            "seed": self.seed,
            "use_phoneme": self.phonemes,
        } | self.choices


def glmtts(
    data: Annotated[str, typer.Option(help="Speak examples/NAME.jsonl, or the list at a path.")] = "example_zh",
    exp_name: Annotated[
        str, typer.Option("--exp_name", "--exp-name", help="Part of the output folder's name.")
    ] = "_test",
    use_cache: Annotated[
        bool, typer.Option("--use_cache/--no_use_cache", help="Continue each piece from the ones before it.")
    ] = True,
    streaming: Annotated[bool, typer.Option("--streaming", help="Sound while it is still being generated.")] = False,
    chunk_size: Annotated[int | None, typer.Option("--chunk_size", "--chunk-size", help=CHUNK_HELP)] = None,
    use_phoneme: Annotated[
        bool, typer.Option("--use_phoneme", "--use-phoneme", help="Replace characters that could be misread.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same samples.", min=0, max=2**63 - 1)] = 0,
    sample_rate: Annotated[
        int, typer.Option("--sample_rate", "--sample-rate", help="24000 (HiFT) or 32000 (Vocos2D).")
    ] = 24000,
    model: CheckpointOption = "ckpt",
    jobs: Annotated[
        int | None, typer.Option(help="Lines spoken at a time; the samples are the same. [1, or 8 on a GPU]", min=1)
    ] = None,
    examples: Annotated[Path, typer.Option(help="Where lists are looked for by name.")] = Path("examples"),
    outputs: Annotated[Path, typer.Option(help="Where outputs go.")] = Path("outputs"),
    config: ConfigOption = None,
) -> None:
    """Speak a GLM-TTS list: a JSON object with uttid, prompt_text, prompt_speech and syn_text a line.

    Writes outputs/pretrain{exp_name}/{data}/{uttid}.wav. Finished lines are passed over when run again; a bad line is
    named and the others are spoken.

    \b
    legato glmtts --data example_zh --exp_name demo --use_cache --streaming --chunk_size 50
    """
    check_flags(chunk_size, sample_rate)
    source = find_list(data, examples)
    folder = outputs / f"pretrain{_checked_name(exp_name)}" / source.stem
    for warning in chunk_warnings(chunk_size, streaming):
        note(f"warning: {warning}")
    choices = _choices(streaming, chunk_size, use_cache, sample_rate)
    settings, checkpoint = _settings(config), locate_checkpoint(model)
    with _open(checkpoint, choices, settings) as engine:
        frontend = engine.model.frontend
        assert isinstance(frontend, GlmFrontend)
        clone, hash_of = lru_cache(CACHED_VOICES)(engine.clone), lru_cache(None)(file_hash)
        common = sound_choices(checkpoint, choices, settings, engine.model.device)
        speaker = Speaker(engine, frontend, seed, streaming, use_phoneme, common, clone, hash_of, Lock(), Live())
        failed = speak_list(source, folder, speaker, jobs or (JOBS_CPU if engine.model.device == "cpu" else JOBS_GPU))
    if failed:
        raise typer.Exit(FAILED)


def _choices(streaming: bool, chunk_size: int | None, use_cache: bool, sample_rate: int) -> glm_tts.Choices:
    return glm_tts.Choices(
        sample_hz=sample_rate,
        mode="streaming" if streaming else "offline",
        chunk_tokens=chunk_size if streaming else None,
        remembers=use_cache,
    )


def check_flags(chunk_size: int | None, sample_rate: int) -> None:
    """Refuse, before anything is loaded, what the model cannot do. Raises ConfigError."""
    if chunk_size is not None and (chunk_size < GRID_TOKENS or chunk_size % GRID_TOKENS):
        raise ConfigError(
            f"--chunk_size {chunk_size} is not a multiple of {GRID_TOKENS} codec tokens ({TOKEN_HZ} a second): write "
            f"{GRID_TOKENS} or more, such as --chunk_size {glm_tts.KEEP_TOKENS[-1]}"
        )
    if sample_rate not in (glm_tts.HIFT_HZ, glm_tts.VOCOS_HZ):
        raise ConfigError(
            f"--sample_rate {sample_rate}: this model speaks at {glm_tts.HIFT_HZ} or {glm_tts.VOCOS_HZ}; write "
            f"--sample_rate {glm_tts.HIFT_HZ} (HiFT) or --sample_rate {glm_tts.VOCOS_HZ} (Vocos2D)"
        )


def _checked_name(name: str) -> str:
    if not name or not all(char.isalnum() or char in "_-." for char in name) or ".." in name:
        raise RequestError(f"--exp_name {name!r}: use letters, digits, _, - and .", "exp_name")
    return name


def chunk_warnings(chunk_size: int | None, streaming: bool) -> list[str]:
    """What an unusual `--chunk_size` costs."""
    if chunk_size is None:
        return []
    if not streaming:
        return ["--chunk_size has no effect without --streaming"]
    least, most = ADVISED_CHUNKS
    around = HISTORY_TOKENS + LOOK_AHEAD_BLOCKS * GRID_TOKENS
    if chunk_size < least:
        ratio = (chunk_size + around) / chunk_size / ((50 + around) / 50)
        return [
            f"--chunk_size {chunk_size} is below {least}: every chunk is computed with {around} tokens and the voice's "
            f"recording around it, so the flow works at least {ratio:.1f} times as much for the same sound as with 50"
        ]
    if chunk_size > most:
        return [
            f"--chunk_size {chunk_size} is above {most}: a chunk waits for {chunk_size / TOKEN_HZ:.1f} s of codec "
            "tokens. The first sound is as early as before, but where the language model is barely faster than real "
            "time, later chunks may come too late"
        ]
    return []


def _settings(config: Path | None) -> Config:
    settings = load_config(config)
    if "max_text_chars" not in settings.engine.model_fields_set:
        engine = settings.engine.model_copy(update={"max_text_chars": NO_TEXT_LIMIT_CHARS})
        settings = settings.model_copy(update={"engine": engine})
    return settings


def _open(checkpoint: Path, choices: glm_tts.Choices, settings: Config) -> SpeechEngine:
    """An engine with the model, which cuts texts as the release does."""

    def load(options: LoadOptions) -> SpeechModel:
        loaded = glm_tts.load(checkpoint, options, choices)
        assert isinstance(loaded.frontend, GlmFrontend)
        return replace(loaded, splitter=loaded.frontend.splitter)

    return legato.open_engine(load, settings)


# --- speaking ---


def speak_list(source: Path, folder: Path, speaker: Speaker, jobs: int) -> int:
    """Speak every line of a list that is not finished; give the number of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    finished = read_records(folder)
    found = list(read_lines(source))
    bad = [line for line in found if isinstance(line, BadLine)]
    good = [line for line in found if isinstance(line, Line)]
    for line in bad:
        note(f"line {line.number}: {line.problem}", style="bold red")
    new = [line for line in good if finished.get(line.uttid) != speaker.record(line)]
    try:
        spoken = sum(_speak_all(new, folder, speaker, jobs))
    except KeyboardInterrupt:
        note(f"{folder}: cancelled; finished lines are kept, and the same command goes on from there")
        raise
    failed = len(bad) + len(new) - spoken
    note(f"{folder}: {spoken} spoken, {len(good) - len(new)} finished before, {failed} failed")
    return failed


def _speak_all(lines: list[Line], folder: Path, speaker: Speaker, jobs: int) -> Iterator[bool]:
    """Whether each line came out. After an error that concerns every line, and Ctrl-C, all of them end."""
    with ThreadPoolExecutor(jobs, thread_name_prefix="legato-line") as pool:
        try:
            yield from pool.map(lambda line: _try(line, folder, speaker), lines)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            speaker.live.end()
            raise


def _try(line: Line, folder: Path, speaker: Speaker) -> bool:
    """Speak a line; a problem is told and ends that line only. What breaks the engine or every line is raised."""
    try:
        _speak(line, folder, speaker, speaker.clone(line.prompt_speech, line.prompt_text))
    except (EngineError, CheckpointError):
        raise
    except Cancelled:
        return False
    except SpeechError as error:
        note(f"line {line.number}, {line.uttid}: {_named(error)}", style="bold red")
        return False
    return True


def _named(error: SpeechError) -> str:
    return f"syn_text: {error}" if isinstance(error, EmptyText) else str(error)


def _speak(line: Line, folder: Path, speaker: Speaker, voice: Voice) -> None:
    """Write {uttid}.wav, and only then its record. The file has its name from the moment it is whole."""
    unfinished = folder / f"{line.uttid}.part"
    pronunciation: Pronunciation = "phonemes" if speaker.phonemes else "text"
    request = SpeechRequest(line.syn_text, voice, speaker.seed, normalize=False, pronunciation=pronunciation)
    with speaker.engine.submit(request) as stream, speaker.live.holding(stream):
        output = FileOutput(str(unfinished), find_format("wav"), stream.sample_rate_hz, whole=not speaker.streaming)
        try:
            for chunk in stream:
                output.push(chunk.pcm)
            output.finish()
        except BaseException:
            output.stop()
            unfinished.unlink(missing_ok=True)
            raise
    unfinished.replace(folder / f"{line.uttid}.wav")
    pieces = [speaker.frontend.spoken(piece, speaker.phonemes) for piece in stream.report.usage.utterances]
    with speaker.recording:
        add_record(folder, speaker.record(line) | {"syn_text_tn": pieces})
    note(f"{line.uttid}: {stream.report.line()}")
