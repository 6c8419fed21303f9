"""Which tensors a checkpoint of a shape has, and random values that a real one could have.

Values are scaled so that every part matters and nothing explodes: each layer adds a little to the
residual stream, as trained ones do, logits have a clear first place, decays lie between "forget at
once" and "keep for thousands of tokens". The final norm has both signs, or a tied head would
repeat the last token for ever. Each tensor's values depend on the seed and its own name only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.support.shapes import SPECIAL_TOKENS, ShapeSpec

Floats = npt.NDArray[np.float32]
RESIDUAL_GAIN = 0.2
BLOCK_ELEMENTS = 1 << 22
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor to be written: its values are drawn only when asked for."""

    name: str
    shape: tuple[int, ...]
    draw: Draw
    keep_float32: bool = False
    quiet_rows: range = range(0)

    def blocks(self, seed: int) -> Iterator[Floats]:
        """The values by blocks of rows, float32, the same for the same seed.

        `quiet_rows` are ten times smaller than the others: tokens that greedy never picks.
        """
        generator = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        rows, *rest = self.shape
        step = max(1, BLOCK_ELEMENTS // int(np.prod(rest)))
        for first in range(0, rows, step):
            block = self.draw(generator, (min(step, rows - first), *rest))
            quiet = [row - first for row in self.quiet_rows if 0 <= row - first < len(block)]
            block[quiet] *= np.float32(0.1)
            yield block


def _normal(std: float, mean: float = 0.0) -> Draw:
    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        values = generator.standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        if mean:
            values += np.float32(mean)
        return values

    return draw


def _matrix(fan_in: int, gain: float = 1.0) -> Draw:
    return _normal(gain / fan_in**0.5)


def _uniform(low: float, high: float) -> Draw:
    return lambda generator, shape: generator.uniform(low, high, shape).astype(np.float32)


def _token_rows(name: str, s: ShapeSpec) -> Tensor:
    special = range(s.first_special, s.first_special + len(SPECIAL_TOKENS))
    rows = _normal(3.0 / s.hidden**0.5)
    return Tensor(name, (s.vocab, s.hidden), rows, quiet_rows=special)


def _linear_attention(prefix: str, s: ShapeSpec) -> Iterator[Tensor]:
    values = s.nv * s.dv
    into = _matrix(s.hidden)
    yield Tensor(f"{prefix}.A_log", (s.nv,), _uniform(np.log(0.01), np.log(16.0)), True)
    yield Tensor(f"{prefix}.conv1d.weight", (s.conv_channels, 1, s.kernel), _matrix(s.kernel))
    yield Tensor(f"{prefix}.dt_bias", (s.nv,), _uniform(-4.0, 1.0))
    yield Tensor(f"{prefix}.in_proj_a.weight", (s.nv, s.hidden), into)
    yield Tensor(f"{prefix}.in_proj_b.weight", (s.nv, s.hidden), into)
    yield Tensor(f"{prefix}.in_proj_qkv.weight", (s.conv_channels, s.hidden), into)
    yield Tensor(f"{prefix}.in_proj_z.weight", (values, s.hidden), into)
    yield Tensor(f"{prefix}.norm.weight", (s.dv,), _normal(0.2, mean=1.0), True)
    yield Tensor(
        f"{prefix}.out_proj.weight", (s.hidden, values), _matrix(values, gain=RESIDUAL_GAIN)
    )


def _full_attention(prefix: str, s: ShapeSpec) -> Iterator[Tensor]:
    into, query, key = _matrix(s.hidden), s.heads * s.head_dim, s.kv_heads * s.head_dim
    yield Tensor(f"{prefix}.k_norm.weight", (s.head_dim,), _normal(0.2, mean=0.3))
    yield Tensor(f"{prefix}.k_proj.weight", (key, s.hidden), into)
    yield Tensor(
        f"{prefix}.o_proj.weight", (s.hidden, query), _matrix(query, gain=2 * RESIDUAL_GAIN)
    )
    yield Tensor(f"{prefix}.q_norm.weight", (s.head_dim,), _normal(0.2, mean=0.3))
    yield Tensor(f"{prefix}.q_proj.weight", (2 * query, s.hidden), into)
    yield Tensor(f"{prefix}.v_proj.weight", (key, s.hidden), into)


def _gated_mlp(prefix: str, hidden: int, inner: int) -> Iterator[Tensor]:
    down = _matrix(inner, gain=1.5 * RESIDUAL_GAIN)
    yield Tensor(f"{prefix}.down_proj.weight", (hidden, inner), down)
    yield Tensor(f"{prefix}.gate_proj.weight", (inner, hidden), _matrix(hidden))
    yield Tensor(f"{prefix}.up_proj.weight", (inner, hidden), _matrix(hidden))


def _mixture(prefix: str, s: ShapeSpec) -> Iterator[Tensor]:
    """Experts whose routing is clear, and whose sum is as large as a dense block's output."""
    joined = (s.experts, 2 * s.intermediate, s.hidden)
    down = _matrix(s.intermediate, gain=3 * RESIDUAL_GAIN)
    yield Tensor(f"{prefix}.experts.down_proj", (s.experts, s.hidden, s.intermediate), down)
    yield Tensor(f"{prefix}.experts.gate_up_proj", joined, _matrix(s.hidden))
    yield Tensor(f"{prefix}.gate.weight", (s.experts, s.hidden), _matrix(s.hidden, gain=2.0))
    if s.shared:
        yield from _gated_mlp(f"{prefix}.shared_expert", s.hidden, s.shared)
        yield Tensor(f"{prefix}.shared_expert_gate.weight", (1, s.hidden), _matrix(s.hidden))


def _decoder_layer(prefix: str, s: ShapeSpec, kind: str) -> Iterator[Tensor]:
    norm = _normal(0.2)
    yield Tensor(f"{prefix}.input_layernorm.weight", (s.hidden,), norm)
    if kind == "L":
        yield from _linear_attention(f"{prefix}.linear_attn", s)
    else:
        yield from _full_attention(f"{prefix}.self_attn", s)
    if s.experts:
        yield from _mixture(f"{prefix}.mlp", s)
    else:
        yield from _gated_mlp(f"{prefix}.mlp", s.hidden, s.intermediate)
    yield Tensor(f"{prefix}.post_attention_layernorm.weight", (s.hidden,), norm)


def _text(s: ShapeSpec) -> Iterator[Tensor]:
    model = "model.language_model"
    yield _token_rows(f"{model}.embed_tokens.weight", s)
    for index, kind in enumerate(s.layers):
        yield from _decoder_layer(f"{model}.layers.{index}", s, kind)
    yield Tensor(f"{model}.norm.weight", (s.hidden,), _normal(1.0, mean=-1.0))
    if not s.tied:
        yield _token_rows("lm_head.weight", s)


def _affine(prefix: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield Tensor(f"{prefix}.weight", (rows, columns), _matrix(columns))
    yield Tensor(f"{prefix}.bias", (rows,), _normal(0.1))


def _layer_norm(prefix: str, width: int) -> Iterator[Tensor]:
    yield Tensor(f"{prefix}.weight", (width,), _normal(0.1, mean=1.0))
    yield Tensor(f"{prefix}.bias", (width,), _normal(0.1))


def _vision(s: ShapeSpec) -> Iterator[Tensor]:
    width, visual = s.vision_hidden, "model.visual"
    pixels = (3, s.temporal_patch, s.patch, s.patch)
    patch = f"{visual}.patch_embed.proj"
    yield Tensor(f"{patch}.weight", (width, *pixels), _matrix(int(np.prod(pixels)), gain=2.0))
    yield Tensor(f"{patch}.bias", (width,), _normal(0.1))
    yield Tensor(f"{visual}.pos_embed.weight", (s.grid_side**2, width), _normal(0.5))
    for index in range(s.vision_depth):
        block = f"{visual}.blocks.{index}"
        yield from _layer_norm(f"{block}.norm1", width)
        yield from _affine(f"{block}.attn.qkv", 3 * width, width)
        yield from _affine(f"{block}.attn.proj", width, width)
        yield from _layer_norm(f"{block}.norm2", width)
        yield from _affine(f"{block}.mlp.linear_fc1", s.vision_intermediate, width)
        yield from _affine(f"{block}.mlp.linear_fc2", width, s.vision_intermediate)
    merged = width * s.merge**2
    yield from _layer_norm(f"{visual}.merger.norm", width)
    yield from _affine(f"{visual}.merger.linear_fc1", merged, merged)
    yield from _affine(f"{visual}.merger.linear_fc2", s.hidden, merged)


def _mtp(s: ShapeSpec) -> Iterator[Tensor]:
    yield Tensor("mtp.fc.weight", (s.hidden, 2 * s.hidden), _matrix(2 * s.hidden))
    yield from _decoder_layer("mtp.layers.0", s, "F")
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield Tensor(f"mtp.{name}.weight", (s.hidden,), _normal(0.2))


def tensors(shape: ShapeSpec, *, with_mtp: bool) -> list[Tensor]:
    """Every tensor of a checkpoint, in the order it is written."""
    plan = [*_text(shape), *_vision(shape)]
    return [*plan, *_mtp(shape)] if with_mtp else plan
