"""Tables of rotary angles, computed as the reference computes them: in FP32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


def inverse_frequencies(theta: float, dim: int) -> Float32:
    """`theta ** (-2i / dim)` for `i < dim / 2`."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)


def rotary_tables(theta: float, dim: int, positions: int) -> tuple[Float32, Float32]:
    """Cosines and sines of every position, `[positions, dim / 2]` each."""
    angles = np.arange(positions, dtype=np.float32)[:, None] * inverse_frequencies(theta, dim)
    return np.cos(angles), np.sin(angles)
