"""The files of a GLM-TTS checkpoint → nets. Sizes follow from the tensors; nothing is ever unpickled but tensors.

Each net is read from its released file or, if it is there, from a safetensors file beside it (`legato convert`).
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.nn.decoder import fuse
from legato.nn.weights import (
    DECODER_GROUPS,
    DECODER_NAMES,
    Rules,
    Uninitialised,
    fuse_projections,
    load_strict,
    read_tensors,
    renamed,
)

from .config import LMFacts, read_lm_facts
from .dit import DiT, DiTSizes
from .files import DOWNLOAD, need_file, read_json_table, telling_what_to_run
from .lm import GlmLM
from .lora import CONFIG_FILE, merge_adapter

DEFAULT_HEAD_WIDTH = 64
"""Of the flow, where the file lacks its rotary table."""


@telling_what_to_run()
def read_released(folder: Path, name: str) -> tuple[dict[str, Tensor], Path]:
    """Tensors of `name`.safetensors if it is there, else of `name`.pt; and the path read. Raises CheckpointError."""
    converted = folder / f"{name}.safetensors"
    if converted.is_file():
        return read_tensors(need_file(converted)), converted
    path = need_file(folder / f"{name}.pt")
    return {key: t.float() if t.is_floating_point() else t for key, t in read_pickled(path).items()}, path


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The state dict in a torch file: under "model" if the file holds a plain dict with that key, else the file itself.

    Only tensors are read; a file that asks for anything else to be run is refused. Raises CheckpointError.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is truncated or not a file of tensors. To fetch the checkpoint again: {DOWNLOAD}"
        ) from error
    for key in ("model", "state_dict", "generator"):
        if isinstance(found, dict) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise CheckpointError(f"{path} holds no table of tensors")
    return dict(found)


# --- language model ---

LM_NAMES: Rules = ((r"^model\.embed_tokens\.", "embedding."), (r"^lm_head\.", "head."), *DECODER_NAMES)
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def load_lm(folder: Path, adapter: Path | None = None) -> GlmLM:
    """The language model in `llm/`, with a LoRA adapter if one is given or lies in the same folder.

    Raises CheckpointError naming the file that is missing, damaged or does not fit.
    """
    facts = read_lm_facts(folder / "config.json")
    raw = _read_shards(folder)
    if adapter is None and (folder / CONFIG_FILE).is_file():
        adapter = folder
    if adapter is not None:
        merge_adapter(raw, adapter)
    own_head = HEAD in raw and (not facts.tied or adapter is not None)
    facts = LMFacts(facts.decoder, facts.vocabulary, tied=not own_head)
    if facts.tied and EMBEDDING in raw:
        raw[HEAD] = raw[EMBEDDING]
    with telling_what_to_run():
        fuse_projections(raw, DECODER_GROUPS, str(folder))
        with Uninitialised():
            net = GlmLM(facts)
        load_strict(net, renamed(raw, LM_NAMES), folder)
    return net


@telling_what_to_run()
def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = {path.name for path in folder.glob("model*.safetensors")}
    if index.is_file():
        try:
            names |= set(read_json_table(index)["weight_map"].values())
        except (KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index} is not an index of safetensors files ({error})") from error
    if not names:
        need_file(folder / "model.safetensors")
    raw: dict[str, Tensor] = {}
    for name in sorted(names):
        raw |= read_tensors(need_file(folder / name))
    return raw


# --- flow ---

FLOW_NAMES = (
    (r"^time_embed\.time_mlp\.0\.", "time_in."),
    (r"^time_embed\.time_mlp\.2\.", "time_out."),
    (r"^text_emb_layer\.text_embed\.", "codes."),
    (r"^text_emb_layer\.text_blocks\.(\d+)\.dwconv\.", r"token_blocks.\1.depthwise."),
    (r"^text_emb_layer\.text_blocks\.(\d+)\.pwconv1\.", r"token_blocks.\1.inner."),
    (r"^text_emb_layer\.text_blocks\.(\d+)\.pwconv2\.", r"token_blocks.\1.outer."),
    (r"^text_emb_layer\.text_blocks\.(\d+)\.(?:grn\.)?", r"token_blocks.\1."),
    (r"^emb_concator\.conv_pos_embed\.conv1d\.0\.", "position_convs.0."),
    (r"^emb_concator\.conv_pos_embed\.conv1d\.2\.", "position_convs.1."),
    (r"^transformer_blocks\.(\d+)\.attn_norm\.linear\.", r"layers.\1.modulation."),
    (r"^transformer_blocks\.(\d+)\.attn\.to_out\.0\.", r"layers.\1.out."),
    (r"^transformer_blocks\.(\d+)\.ff\.ff\.0\.0\.", r"layers.\1.inner."),
    (r"^transformer_blocks\.(\d+)\.ff\.ff\.2\.", r"layers.\1.outer."),
    (r"^norm_out\.linear\.", "final_modulation."),
    (r"^proj_out\.", "outputs."),
    (r"^rotary_embed\.inv_freq$", "frequencies"),
)


@telling_what_to_run()
def load_dit(folder: Path) -> DiT:
    """The flow's net in `flow/`. Raises CheckpointError naming the file that is missing, damaged or does not fit."""
    raw, path = read_released(folder, "flow")
    raw = {name.removeprefix("estimator."): tensor for name, tensor in raw.items()}
    try:
        sizes = dit_sizes(raw)
        _split_and_fuse(raw, sizes)
    except (KeyError, IndexError) as error:
        raise CheckpointError(f"{path} lacks {error}, or it has another shape than this flow's") from error
    with Uninitialised():
        net = DiT(sizes)
    load_strict(net, renamed(raw, FLOW_NAMES), path)
    return net


def dit_sizes(raw: Mapping[str, Tensor]) -> DiTSizes:
    """Sizes from the shapes of the released tensors. Raises KeyError or IndexError when they are others'."""
    width, time_width = raw["time_embed.time_mlp.0.weight"].shape
    rows, token_width = raw["text_emb_layer.text_embed.weight"].shape
    rotary = raw.get("rotary_embed.inv_freq")
    head_width = DEFAULT_HEAD_WIDTH if rotary is None else 2 * len(rotary)
    conv = raw["emb_concator.conv_pos_embed.conv1d.0.weight"]
    return DiTSizes(
        width=width,
        layers=_count(raw, "transformer_blocks"),
        heads=width // head_width,
        inner=raw["transformer_blocks.0.ff.ff.0.0.weight"].shape[0],
        mel_bins=raw["proj_out.weight"].shape[0],
        speaker=raw["norm_out.linear.weight"].shape[1] - width,
        rows=rows,
        token_width=token_width,
        token_inner=raw["text_emb_layer.text_blocks.0.pwconv1.weight"].shape[0],
        token_blocks=_count(raw, "text_emb_layer.text_blocks"),
        token_kernel=raw["text_emb_layer.text_blocks.0.dwconv.weight"].shape[2],
        conv_kernel=conv.shape[2],
        conv_groups=width // conv.shape[1],
        time_width=time_width,
    )


def _count(raw: Mapping[str, Tensor], prefix: str) -> int:
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.")
    return 1 + max((int(match[1]) for name in raw if (match := pattern.match(name))), default=-1)


def _split_and_fuse(raw: dict[str, Tensor], sizes: DiTSizes) -> None:
    """The input projection parts into what the noisy mel gives and what is fixed; projections become one matrix."""
    from_mel = raw.pop("emb_concator.proj.weight")
    raw["from_mel.weight"] = from_mel[:, : sizes.mel_bins].contiguous()
    raw["from_fixed.weight"] = from_mel[:, sizes.mel_bins :].contiguous()
    raw["from_fixed.bias"] = raw.pop("emb_concator.proj.bias")
    for layer in range(sizes.layers):
        for kind in ("weight", "bias"):
            parts = [raw.pop(f"transformer_blocks.{layer}.attn.to_{p}.{kind}") for p in "qkv"]
            raw[f"layers.{layer}.qkv.{kind}"] = fuse(*parts)
    if "rotary_embed.inv_freq" not in raw:
        half = sizes.width // sizes.heads // 2
        raw["rotary_embed.inv_freq"] = 10000.0 ** -(torch.arange(half) / half)


def fold_weight_norm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weight-normed layers (Salimans and Kingma 2016, arXiv:1602.07868), in either spelling of torch, as plain ones.

    Raises KeyError when half of a pair is missing.
    """
    parametrized = ".parametrizations.weight.original"
    spellings = ((f"{parametrized}0", f"{parametrized}1"), (".weight_g", ".weight_v"))
    out = dict(tensors)
    for length, direction in spellings:
        for name in [n.removesuffix(length) for n in tensors if n.endswith(length)]:
            g, v = out.pop(name + length), out.pop(name + direction, None)
            if v is None:
                raise KeyError(name + direction)
            out[f"{name}.weight"] = torch._weight_norm(v, g, 0)
    return out
