"""Weights in int8 with a scale for each row, for inputs in int8 with one scale for all: what the
310P multiplies (W8A8).

An input is `step` times its code, a weight its row's scale times its code. The kernel is given the
product of both for each row, of whose float it reads the upper 19 bits: products are chosen among
those, so that codes and what the kernel reads of them fit each other to the last bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from q35export.matrix import Float32, Matrix

Int8 = npt.NDArray[np.int8]
Int64 = npt.NDArray[np.int64]

LARGEST = 127
"""The largest code, of either sign."""
_UNREAD = np.uint32(0x1FFF)
"""Bits of a float that the hardware leaves out (aclnnTransQuantParamV2: `scale & 0xFFFFE000`)."""


def row_codes(rows: Float32, step: float) -> tuple[Int8, Float32]:
    """Round rows `[n, k]` to nearest.

    Returns:
        Codes `[n, k]` of -127 to 127, and for each row `[n]` what a product of two codes is worth.
    """
    peaks = np.abs(rows).max(axis=-1)
    peaks = np.where(peaks == 0, np.float32(1), peaks)
    scales = _readable(peaks * np.float32(step / LARGEST))
    codes = np.rint(rows / (scales / np.float32(step))[:, None])
    return np.clip(codes, -LARGEST, LARGEST).astype(np.int8), scales


def rounded_rows(rows: Float32, step: float) -> Float32:
    """Rows `[n, k]` as the kernel multiplies by them."""
    codes, scales = row_codes(rows, step)
    return decoded(codes, scales, step)


def decoded(codes: Int8, scales: Float32, step: float) -> Float32:
    """The weights `[n, k]` that codes stand for."""
    rows: Float32 = codes.astype(np.float32) * (scales / np.float32(step))[:, None]
    return rows


def rounded_matrix(weights: Matrix, step: float) -> Matrix:
    """The matrix as the kernel multiplies by it, unread."""

    def rows(start: int, stop: int) -> Float32:
        return rounded_rows(weights.rows(start, stop), step)

    return Matrix(weights.n, weights.k, rows, weights.group)


def rounded_inputs(rows: Float32, step: float) -> Float32:
    """Round inputs `[T, k]` as the kernel multiplies them: codes of -128 to 127 times `step`."""
    codes = np.clip(np.rint(rows * np.float32(1 / step)), -LARGEST - 1, LARGEST)
    rounded: Float32 = (codes * np.float32(step)).astype(np.float32)
    return rounded


def packed(scales: Float32) -> Int64:
    """Pack scales `[n]` FP32 as the kernel takes them: the bits of a float in the lower half of an
    int64."""
    return scales.astype(np.float32).view(np.uint32).astype(np.int64)


def unpacked(numbers: Int64) -> Float32:
    """Return the scales `[n]` FP32 of `packed`, without the bits that are not read."""
    return (numbers.astype(np.uint32) & ~_UNREAD).view(np.float32)


def _readable(scales: Float32) -> Float32:
    """The next larger floats of 19 bits, so that no code is too large for its row."""
    bits = scales.astype(np.float32).view(np.uint32)
    return ((bits + _UNREAD) & ~_UNREAD).view(np.float32)
