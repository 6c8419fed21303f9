"""Tables of rotary angles, computed as the reference computes them: in FP32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from q35export.config import Rope

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(theta: float, dim: int) -> Float32:
    """Return `theta ** (-2i / dim)` for `i < dim / 2`, `[dim / 2]` FP32, in radians a position
    (RoPE, Su et al. 2021)."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)


def rotary_tables(theta: float, dim: int, positions: int) -> tuple[Float32, Float32]:
    """Cosines and sines of every position, `[positions, dim / 2]` each."""
    angles = np.arange(positions, dtype=np.float32)[:, None] * inverse_frequencies(theta, dim)
    return np.cos(angles), np.sin(angles)


def signed_frequencies(rope: Rope, width: int) -> Float32:
    """`[3, width]`: what a head's dimensions turn by per temporal, height and width position.

    Interleaved multimodal rotation: each frequency belongs to one of the three. The first half of
    the rotating dimensions has its frequencies negated, so that `x cos + swap(x) sin` rotates;
    dimensions that do not rotate have none.
    """
    half = rope.dim // 2
    index = np.arange(half)
    owner = np.zeros(half, dtype=np.int64)
    for axis in (1, 2):
        owner[(index % 3 == axis) & (index < 3 * rope.sections[axis])] = axis
    chosen = (np.arange(3)[:, None] == owner) * inverse_frequencies(rope.theta, rope.dim)
    rest = np.zeros((3, width - rope.dim))
    return np.concatenate([-chosen, chosen, rest], axis=1).astype(np.float32)


def signed_patch_frequencies(theta: float, width: int) -> Float32:
    """`[2, width]`: what a patch head's dimensions turn by per row and per column, signed alike."""
    single = inverse_frequencies(theta, width // 2)
    nothing = np.zeros_like(single)
    chosen = np.stack([np.concatenate([single, nothing]), np.concatenate([nothing, single])])
    return np.concatenate([-chosen, chosen], axis=1)
