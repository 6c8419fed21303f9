"""Block-wise weight quantisation in the layout of ONNX Runtime's `MatMulNBits`.

Each row is cut into blocks of `block` values along K (the last one padded with zeros); a block
keeps one FP32 scale, and a value is `(code - 2**(bits - 1)) * scale`. Four-bit codes are packed
two to a byte, the even position in the low half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

# Scales tried for each block, as fractions of the one that spans its largest value: a slightly
# smaller scale clips that one value and rounds all others more finely.
_SHRINK = (1.0, 0.94, 0.88, 0.82)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Bits per code and values per block; `accuracy_level` 4 lets the runtime multiply in int8."""

    bits: int
    block: int
    accuracy_level: int = 4

    @property
    def half(self) -> int:
        """The code of zero."""
        return 1 << (self.bits - 1)

    def blocks(self, k: int) -> int:
        """Blocks in a row of `k` values."""
        return -(-k // self.block)

    def block_bytes(self) -> int:
        """Packed bytes of one block."""
        return self.block * self.bits // 8

    def size(self, n: int, k: int) -> int:
        """Bytes of codes and scales of a matrix `[n, k]`."""
        return n * self.blocks(k) * (self.block_bytes() + np.dtype(np.float32).itemsize)


def quantize(weights: Float32, fmt: BlockFormat) -> tuple[Codes, Float32]:
    """Quantise rows.

    Args:
        weights: `[rows, k]`.
        fmt: bits and block length.

    Returns:
        Packed codes `[rows, blocks, block_bytes]` and scales `[rows, blocks]`.
    """
    rows, k = weights.shape
    padded = fmt.blocks(k) * fmt.block
    flat = np.zeros((rows, padded), np.float32)
    flat[:, :k] = weights
    values: Float32 = flat.reshape(rows, fmt.blocks(k), fmt.block)
    if fmt.bits == 8:
        peak = np.abs(values).max(axis=-1, keepdims=True)
        scales = _never_zero(peak / np.float32(fmt.half - 1))
    else:
        scales = _searched_scales(values, fmt)
    codes = np.rint(values / scales)
    np.clip(codes, -fmt.half, fmt.half - 1, out=codes)
    return pack((codes + fmt.half).astype(np.uint8), fmt), scales[..., 0]


def dequantize(packed: Codes, scales: Float32, k: int, fmt: BlockFormat) -> Float32:
    """The weights `[rows, k]` that the runtime multiplies by."""
    codes = packed
    if fmt.bits == 4:
        codes = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    values = (codes.astype(np.float32) - fmt.half) * scales[..., None]
    rows: Float32 = values.reshape(len(values), -1)[:, :k]
    return rows


def _searched_scales(values: Float32, fmt: BlockFormat) -> Float32:
    """The scale of least squared error; signed, so that the code -half can hold the peak."""
    index = np.abs(values).argmax(axis=-1)[..., None]
    full = _never_zero(np.take_along_axis(values, index, axis=-1) / np.float32(-fmt.half))
    best = full
    least = np.full_like(full, np.inf)
    for shrink in _SHRINK:
        scale = (full * np.float32(shrink)).astype(np.float32)
        rounded = np.clip(np.rint(values / scale), -fmt.half, fmt.half - 1)
        rounded *= scale
        rounded -= values
        error = np.einsum("rbi,rbi->rb", rounded, rounded)[..., None]
        best = np.where(error < least, scale, best)
        least = np.minimum(least, error)
    return best


def pack(codes: Codes, fmt: BlockFormat) -> Codes:
    """Codes `[rows, blocks, block]` as bytes `[rows, blocks, block_bytes]`."""
    if fmt.bits == 8:
        return codes
    packed: Codes = codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))
    return packed


def _never_zero(scales: Float32) -> Float32:
    return np.where(scales == 0, np.float32(1), scales).astype(np.float32)
