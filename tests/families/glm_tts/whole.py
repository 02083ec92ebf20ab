"""A whole tiny checkpoint in the released layout: our nets (tiny.py) and the frontend's files (tiny_frontend.py)."""

from __future__ import annotations

from pathlib import Path

from . import tiny, tiny_frontend

SIZES = tiny.Sizes(vocabulary=1024)


def build_whole(folder: Path, sizes: tiny.Sizes = SIZES) -> Path:
    """Write `folder`/ckpt and `folder`/frontend, as in a clone of the released repository; gives `folder`/ckpt."""
    tree = tiny.build(folder / "ckpt", sizes)
    tiny_frontend.write_speech_tokenizer(tree / "speech_tokenizer", quantize_vocab_size=tiny.CODES)
    tiny_frontend.write_text_tokenizer(tree / "vq32k-phoneme-tokenizer", speech_tokens=tiny.CODES)
    (folder / "frontend").mkdir()
    tiny_frontend.write_speaker_net(folder / "frontend" / "campplus.onnx")
    return tree
