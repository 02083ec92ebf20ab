"""The encoder of pictures: patches of one picture in time → a row for every 2 × 2 of them (Qwen2.5-VL,
arXiv:2502.13923 §2.1).

Most layers attend within windows; a few within the whole picture; none from one picture in time to another. So a film
is encoded picture by picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.layers import Linear, RMSNorm, rotate
from legato.nn.weights import Rules, Uninitialised, fuse_projections

from .parts import VisionConfig
from .weights import Tensors, load_part

ROPE_THETA, NORM_EPS = 10000.0, 1e-6
PREFIX, PATCHES = "thinker.visual.", "patch_embed.proj.weight"
CACHED_LAYOUTS = 32

GROUPS = {"qkv": ("q", "k", "v"), "gate_up": ("gate_proj", "up_proj")}
NAMES: Rules = (
    (r"^patch_embed\.proj\.", "patches."),
    (r"^blocks\.(\d+)\.norm1\.", r"layers.\1.attention_norm."),
    (r"^blocks\.(\d+)\.norm2\.", r"layers.\1.mlp_norm."),
    (r"^blocks\.(\d+)\.attn\.proj\.", r"layers.\1.out."),
    (r"^blocks\.(\d+)\.attn\.qkv\.", r"layers.\1.qkv."),
    (r"^blocks\.(\d+)\.mlp\.gate_up\.", r"layers.\1.gate_up."),
    (r"^blocks\.(\d+)\.mlp\.down_proj\.", r"layers.\1.down."),
    (r"^merger\.ln_q\.", "merge_norm."),
    (r"^merger\.mlp\.0\.", "merge_inner."),
    (r"^merger\.mlp\.2\.", "merge_outer."),
)


@dataclass(frozen=True, eq=False)
class Layout:
    """A picture of one size in windows. Cells (merge × merge patches) are sorted by the size of their window, then by
    window: `order` [cells] says which cell comes where, `back` [cells] undoes it. `windows` are (how many windows, how
    many patches in each). `cos` and `sin` [patches, 1, head_dim] turn patches in sorted order."""

    order: Tensor
    back: Tensor
    windows: tuple[tuple[int, int], ...]
    cos: Tensor
    sin: Tensor


class VisionLayer(nn.Module):
    """Pre-norm attention and SwiGLU, all with biases."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = RMSNorm(config.width, NORM_EPS)
        self.mlp_norm = RMSNorm(config.width, NORM_EPS)
        self.qkv = Linear(config.width, 3 * config.width)
        self.out = Linear(config.width, config.width)
        self.gate_up = Linear(config.width, 2 * config.inner)
        self.down = Linear(config.inner, config.width)

    def forward(self, x: Tensor, layout: Layout, windows: tuple[tuple[int, int], ...]) -> Tensor:
        """x [B, patches, width] → the same shape; patches attend within windows."""
        batch, patches, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, patches, 3, self.heads, -1).unbind(2)
        q, k = (rotate(t.float(), layout.cos, layout.sin).to(v.dtype) for t in (q, k))
        x = x + self.out(_attend(q, k, v, windows).reshape(batch, patches, width))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def _attend(q: Tensor, k: Tensor, v: Tensor, windows: tuple[tuple[int, int], ...]) -> Tensor:
    """Attention [B, patches, heads, head_dim] within windows, those of one size together.

    Windows of all pictures lie side by side in one dimension: kernels that go through the keys piece by piece take four
    dimensions, with five the scores of all patches to all patches would be held at once.
    """
    out, at = [], 0
    for count, size in windows:
        stop = at + count * size
        query, key, value = (t[:, at:stop].reshape(-1, size, *t.shape[2:]).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        out.append(mixed.reshape(len(q), count * size, *q.shape[2:]))
        at = stop
    return torch.cat(out, 1)


class VisionTower(nn.Module):
    """Patches are rows of pixels; layers; then the patches of a cell become one row."""

    def __init__(self, config: VisionConfig, channels: int = 3) -> None:
        super().__init__()
        self.config = config
        pixels = channels * config.patch_frames * config.patch_pixels**2
        merged = config.width * config.merge**2
        self.patches = Linear(pixels, config.width, bias=False)
        self.layers = nn.ModuleList(VisionLayer(config) for _ in range(config.layers))
        self.merge_norm = RMSNorm(config.width, NORM_EPS)
        self.merge_inner = Linear(merged, merged)
        self.merge_outer = Linear(merged, config.out_width)

    def forward(self, pixels: Tensor, rows: int, columns: int) -> Tensor:
        """Pictures of rows × columns cells as pixels [B, patches, channels × patch_frames × side²], the patches of a
        cell one behind the other → [B, rows × columns, out_width]."""
        layout = layout_of(rows, columns, self.config, self.patches.weight.device)
        unit = self.config.merge**2
        x = self.patches(pixels.to(self.patches.weight.dtype))
        x = x.unflatten(1, (-1, unit))[:, layout.order].flatten(1, 2)
        whole = ((1, x.shape[1]),)
        for index, layer in enumerate(self.layers):
            x = layer(x, layout, whole if index in self.config.full_layers else layout.windows)
        cells = self.merge_norm(x).unflatten(1, (-1, unit)).flatten(2)
        merged: Tensor = self.merge_outer(F.gelu(self.merge_inner(cells)))
        return merged[:, layout.back]


@lru_cache(CACHED_LAYOUTS)
def layout_of(rows: int, columns: int, config: VisionConfig, device: torch.device) -> Layout:
    """The layout of a picture of rows × columns cells, its tensors on `device`."""
    side = config.window_pixels // config.cell_pixels
    windows = [
        [r * columns + c for r in range(top, min(top + side, rows)) for c in range(left, min(left + side, columns))]
        for top in range(0, rows, side)
        for left in range(0, columns, side)
    ]
    windows.sort(key=len, reverse=True)
    unit, sizes = config.merge**2, sorted({len(window) for window in windows}, reverse=True)
    order = torch.tensor([cell for window in windows for cell in window])
    cos, sin = _turns(order, columns, config)
    return Layout(
        order=order.to(device),
        back=order.argsort().to(device),
        windows=tuple((sum(len(w) == size for w in windows), size * unit) for size in sizes),
        cos=cos.to(device),
        sin=sin.to(device),
    )


def _turns(order: Tensor, columns: int, config: VisionConfig) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine [patches, 1, head_dim]: a quarter of the head turns by row, the next one by column, and
    the same again."""
    merge, head_dim = config.merge, config.width // config.heads
    inside = torch.arange(merge)
    at_row = (order // columns * merge)[:, None, None] + inside[None, :, None].expand(-1, -1, merge)
    at_column = (order % columns * merge)[:, None, None] + inside[None, None, :].expand(-1, merge, -1)
    rates = 1.0 / ROPE_THETA ** (torch.arange(0, head_dim // 2, 2, dtype=torch.float32) / (head_dim // 2))
    angles = torch.cat([at.reshape(-1, 1).float() * rates for at in (at_row, at_column)], 1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], 1)[:, None], torch.cat([-sin, sin], 1)[:, None]


def load_vision_tower(tensors: Tensors, config: VisionConfig, dtype: torch.dtype) -> VisionTower:
    """Raises CheckpointError for what does not fit."""
    raw = tensors.read(PREFIX, dtype)
    if PATCHES in raw:
        raw[PATCHES] = raw[PATCHES].flatten(1)
    fuse_projections(raw, GROUPS, str(tensors.folder))
    with Uninitialised():
        net = VisionTower(config)
    load_part(net, raw, NAMES, tensors.folder)
    return net
