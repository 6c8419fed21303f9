"""Turns the residual stream by an orthogonal matrix Q, so that no channel stands out.

Rows x become x Q. What reads the stream is stored as `W diag(γ) Q`, γ being the weights of the
norm before it, which thereby become ones; what writes it as `Qᵀ W`; the embedding as `E Q`. The
network computes what it did (QuaRot, Ashkboos et al. 2024, section 4). The last norm keeps its
weights: the graph turns the stream back in front of it and again behind it, so that a tied
embedding stays one matrix and all that leaves the graph is as it was.

Q is the Kronecker product A ⊗ B of two small matrices: turning a row of a·b values costs
a·b·(a + b) multiplications instead of (a·b)², and a graph has a few kilobytes of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from q35export.config import TextConfig
from q35export.matrix import HEAD, TEXT, Float32, Shape, TensorSource

Float64 = npt.NDArray[np.float64]

_SEED = 35
_READERS = re.compile(
    r"language_model\.layers\.\d+\.(?:linear_attn\.in_proj_\w+\.weight"
    r"|self_attn\.[qkv]_proj\.weight"
    r"|(mlp)\.(?:experts\.gate_up_proj|(?:shared_expert\.)?(?:gate|up)_proj\.weight"
    r"|(?:shared_expert_)?gate\.weight))$"
)
_WRITERS = re.compile(
    r"language_model\.layers\.\d+\.(linear_attn\.out_proj|self_attn\.o_proj"
    r"|mlp\.(?:shared_expert\.)?down_proj)\."
)
_EXPERTS = re.compile(r"language_model\.layers\.\d+\.mlp\.experts\.down_proj$")
_NORMS = re.compile(r"language_model\.layers\.\d+\.(input|post_attention)_layernorm\.weight$")
_DRAFT_FC, _DRAFT_NORM = "mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight"


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Q = `left` ⊗ `right`, orthogonal `[a, a]` and `[b, b]`, for rows of a·b values."""

    left: Float32
    right: Float32

    def turn(self, rows: Float32) -> Float32:
        """`rows @ Q`, `[..., a·b]`."""
        return self._both(rows, self.left.T, self.right)

    def turn_back(self, rows: Float32) -> Float32:
        """`rows @ Q.T`, `[..., a·b]`."""
        return self._both(rows, self.left, self.right.T)

    def _both(self, rows: Float32, left: Float32, right: Float32) -> Float32:
        grid = rows.reshape(*rows.shape[:-1], len(left), len(right))
        turned: Float32 = (left @ (grid @ right)).reshape(rows.shape)
        return turned


def rotation_of(width: int) -> Rotation:
    """The rotation of every model of this width; `width` is split as near to a square as it goes.

    Each factor is a discrete Hartley transform with random signs: all of its entries are about as
    large, for any size, so that one large channel is spread over all. Where its size is a power of
    two they are those of a Hadamard matrix, and equally large.
    """
    small = next(size for size in range(isqrt(width), 0, -1) if width % size == 0)
    signs = np.random.default_rng(_SEED)
    return Rotation(_factor(small, signs), _factor(width // small, signs))


def _factor(size: int, signs: np.random.Generator) -> Float32:
    if size & (size - 1):
        index = np.arange(size)
        angles = 2 * np.pi * np.outer(index, index) / size
        matrix: Float64 = np.cos(angles) + np.sin(angles)
    else:
        matrix = np.ones((1, 1))
        while len(matrix) < size:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    flips = signs.choice([-1.0, 1.0], size)
    factor: Float32 = (flips[:, None] * matrix / np.sqrt(size)).astype(np.float32)
    return factor


class TurnedWeights:
    """The weights of `source` for the turned stream; those that do not touch it as they are.

    A `TensorSource`. Matrices that write the stream are turned across their rows, so one of them,
    or of an expert's, is held whole at a time.
    """

    def __init__(self, source: TensorSource, config: TextConfig) -> None:
        self._source = source
        self._rotation = rotation_of(config.hidden_size)
        self._width = config.hidden_size
        self._heights: dict[str, int] = {}
        self._whole: tuple[str, Float32] | None = None

    def expect(self, name: str, shape: Shape) -> None:
        """Hear, before the tensor is read, that the model has one of this name and shape."""
        self._heights[name] = shape[0]
        self._source.expect(name, shape)

    def read(self, name: str) -> Float32:
        """The whole tensor."""
        return self.rows(name, 0, self._heights[name])

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """`tensor[start:stop]` along the first axis."""
        if _NORMS.search(name) or name == _DRAFT_NORM:
            return np.zeros(stop - start, np.float32)  # 1 + 0: folded into what reads behind it
        if _WRITERS.search(name):
            written: Float32 = self._writer(name)[start:stop]
            return written
        return self._turned(name, self._source.rows(name, start, stop))

    def _turned(self, name: str, found: Float32) -> Float32:
        if _EXPERTS.search(name):
            return np.swapaxes(self._rotation.turn(np.swapaxes(found, 1, 2)), 1, 2)
        if name in {f"{TEXT}embed_tokens.weight", HEAD}:
            return self._rotation.turn(found)
        if name == _DRAFT_FC:
            return self._draft_input(found)
        if reader := _READERS.search(name):
            norm = "post_attention_layernorm" if reader[1] else "input_layernorm"
            layer = ".".join(name.split(".")[:4])
            return self._rotation.turn(found * self._gamma(f"{layer}.{norm}.weight"))
        return found

    def _gamma(self, norm: str) -> Float32:
        return np.float32(1) + self._source.read(norm)

    def _draft_input(self, rows: Float32) -> Float32:
        """The half that reads an embedding; the other reads a hidden state, turned back."""
        embedding, hidden = rows[:, : self._width], rows[:, self._width :]
        turned = self._rotation.turn(embedding * self._gamma(_DRAFT_NORM))
        return np.concatenate([turned, hidden], axis=1)

    def _writer(self, name: str) -> Float32:
        if self._whole is None or self._whole[0] != name:
            matrix = self._source.read(name)
            self._whole = name, np.ascontiguousarray(self._rotation.turn(matrix.T).T)
        return self._whole[1]


def folded(config: TextConfig, read: Callable[[str], Float32]) -> Iterator[tuple[str, Float32]]:
    """The decoder's tensors that change where norms are folded, unturned: what reads behind a norm,
    then the norm."""
    for index, kind in enumerate(config.layer_types):
        layer = f"{TEXT}layers.{index}"
        mixer = [f"self_attn.{part}_proj" for part in "qkv"]
        if kind == "linear_attention":
            mixer = [f"linear_attn.in_proj_{part}" for part in ("qkv", "z", "a", "b")]
        behind = {
            "input_layernorm": [f"{name}.weight" for name in mixer],
            "post_attention_layernorm": list(_feed_forward_readers(config)),
        }
        for norm, readers in behind.items():
            gamma = np.float32(1) + read(f"{layer}.{norm}.weight")
            for reader in readers:
                yield f"{layer}.{reader}", read(f"{layer}.{reader}") * gamma
            yield f"{layer}.{norm}.weight", np.zeros_like(gamma)


def _feed_forward_readers(config: TextConfig) -> Iterator[str]:
    """What reads the stream behind the second norm of a layer."""
    if config.experts is None:
        yield from ("mlp.gate_proj.weight", "mlp.up_proj.weight")
        return
    yield from ("mlp.gate.weight", "mlp.experts.gate_up_proj")
    if config.experts.shared_width:
        yield from (f"mlp.shared_expert.{part}_proj.weight" for part in ("gate", "up"))
        yield "mlp.shared_expert_gate.weight"


def turned_back(name: str, values: Float32) -> Float32:
    """A decoder's matrix as it would be without the rotation, its norm folded still."""
    if _WRITERS.search(name):
        written: Float32 = rotation_of(values.shape[0]).turn_back(values.T).T
        return written
    if _EXPERTS.search(name):
        across = np.swapaxes(values, 1, 2)
        return np.swapaxes(rotation_of(values.shape[1]).turn_back(across), 1, 2)
    return rotation_of(values.shape[-1]).turn_back(values)
