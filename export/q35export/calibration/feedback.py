"""Rounds a matrix so that the errors of its columns cancel on the inputs it is really given.

GPTQ (Frantar et al. 2023) in the form of LDLQ (Chee et al. 2023, QuIP, section 3): with the
moments `H = XᵀX = (U + I) D (U + I)ᵀ`, U strictly upper triangular, column k is rounded after
`(W - Ŵ)[:, :k] @ U[:k, k]` was added to it. That minimises `tr((W - Ŵ) H (W - Ŵ)ᵀ)` greedily,
with one triangular factor and no inverse. Then scales and codes are gone through once more, each
set to what is best while all others stay (coordinate descent on the same sum, Behdin et al. 2023,
QuantEase). Rows do not know of each other, so they come in any number of pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from q35export.quantize import BlockFormat, Codes, Float32, pack

Float64 = npt.NDArray[np.float64]

_LEAST_DAMPING, _MOST_DAMPING = 0.05, 1.0
_SPREADS = {4: (1.0, 0.94, 0.88, 0.82, 0.76, 0.7, 0.64), 8: (1.01,)}
"""Scales tried for a block, as shares of the one that spans its largest value."""
_STRIDE = 16
"""Columns whose errors reach each other one by one; further columns get them by multiplication."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the inputs of a matrix `[n, k]` say about rounding it.

    `moments` `[k, k]` is H, damped; `upper` `[k, k]` holds U; both FP32. `weight` `[k]` is the
    diagonal of D: what a column's own error costs.
    """

    moments: Float32
    upper: Float32
    weight: Float32


def damping_of(tokens: int, width: int) -> float:
    """The share of the mean moment that is added to each, for moments of so many tokens.

    Columns of a matrix that is as wide as the text is long seem to follow from each other where
    they do not in another text. Measured on SmolLM2-135M with 4,096 tokens, on a text that is held
    out: a share of tokens to values, where a hundredth lets the error of the widest matrix grow by
    a quarter.
    """
    return min(max(width / tokens, _LEAST_DAMPING), _MOST_DAMPING)


def feedback_of(moments: Float32, damping: float) -> Feedback:
    """Factor the moments `XᵀX` `[k, k]` of a matrix's inputs X `[tokens, k]`, `damping` times their
    mean added to each."""
    flipped: Float64 = moments[::-1, ::-1].astype(np.float64)
    diagonal = np.diagonal(flipped)
    flipped[np.diag_indices_from(flipped)] += damping * float(diagonal.mean()) or 1.0
    damped = flipped[::-1, ::-1].astype(np.float32)
    factor = np.linalg.cholesky(flipped)[::-1, ::-1]  # upper: H = factor @ factor.T
    del flipped  # of the widest matrix half a gigabyte and more
    root = np.diagonal(factor).copy()
    factor /= root
    upper = factor.astype(np.float32)
    np.fill_diagonal(upper, 0)
    return Feedback(damped, upper, (root * root).astype(np.float32))


def round_rows(weights: Float32, feedback: Feedback, fmt: BlockFormat) -> tuple[Codes, Float32]:
    """Round rows `[rows, k]`.

    Returns:
        Packed codes `[rows, blocks, block_bytes]` and scales `[rows, blocks]`, as
        `q35export.quantize.quantize` does.
    """
    rows, k = weights.shape
    upper, blocks = feedback.upper, fmt.blocks(k)
    columns = np.ascontiguousarray(weights.T)  # so that a column's values lie side by side
    errors = np.zeros_like(columns)
    codes = np.zeros((blocks * fmt.block, rows), np.float32)
    scales = np.ones((blocks, rows), np.float32)
    for block in range(blocks):
        start, stop = block * fmt.block, min((block + 1) * fmt.block, k)
        target = columns[start:stop] + upper[:start, start:stop].T @ errors[:start]
        scale = fitted_scales(target, feedback.weight[start:stop], fmt)
        scales[block] = scale
        for first in range(start, stop, _STRIDE):
            last = min(first + _STRIDE, stop)
            target[first - start : last - start] += (
                upper[start:first, first:last].T @ errors[start:first]
            )
            for column in range(first, last):
                wanted = target[column - start] + upper[first:column, column] @ errors[first:column]
                codes[column] = _codes(wanted, scale, fmt)
                errors[column] = columns[column] - codes[column] * scale
    for block in range(blocks):
        span = slice(block * fmt.block, min((block + 1) * fmt.block, k))
        _settle(feedback.moments[span], errors, codes[span], scales[block], fmt, span)
        errors[span] = columns[span] - codes[span] * scales[block]
    by_row = np.ascontiguousarray(codes.T).reshape(rows, blocks, fmt.block)
    packed = pack((by_row + fmt.half).astype(np.uint8), fmt)
    return packed, np.ascontiguousarray(scales.T)


def _settle(
    moments: Float32, errors: Float32, codes: Float32, scale: Float32, fmt: BlockFormat, span: slice
) -> None:
    """Set the scales `[rows]` of a block, then its codes `[block, rows]` one column after the
    other, to what is best beside the `errors` `[k, rows]` of all others; in place.

    `moments` `[block, k]` are the rows of H that belong to the block.
    """
    own = moments[:, span]
    pull = moments @ errors  # half of what the sum changes by for each value of the block
    turned = own @ codes
    power = np.einsum("kr,kr->r", codes, turned)
    change = np.einsum("kr,kr->r", codes, pull) / np.where(power > 0, power, np.float32(1))
    change[scale + change == 0] = 0
    scale += change
    pull -= turned * change
    moved = np.zeros_like(pull)
    for first in range(0, len(own), _STRIDE):
        last = min(first + _STRIDE, len(own))
        pull[first:last] -= own[first:last, :first] @ moved[:first]
        for column in range(first, last):
            force = pull[column] - own[column, first:column] @ moved[first:column]
            wanted = codes[column] * scale + force / own[column, column]
            code = _codes(wanted, scale, fmt)
            moved[column] = (code - codes[column]) * scale
            codes[column] = code


def fitted_scales(columns: Float32, weight: Float32, fmt: BlockFormat) -> Float32:
    """Scales `[rows]` of one block `[columns, rows]`, each of least squared error by `weight`.

    Each candidate is refitted by least squares to the codes that it gives. Scales are signed, so
    that the code -half can hold the value of largest magnitude.
    """
    peak = np.take_along_axis(columns, np.abs(columns).argmax(axis=0)[None], axis=0)[0]
    peak = np.where(peak == 0, np.float32(1), peak)
    best, least = np.ones_like(peak), np.full_like(peak, np.inf)
    for spread in _SPREADS[fmt.bits]:
        scale = peak * np.float32(-spread / fmt.half)
        code = _codes(columns, scale, fmt)
        weighted = code * weight[:, None]
        power = np.einsum("kr,kr->r", weighted, code)
        overlap = np.einsum("kr,kr->r", weighted, columns)
        # Of sum(w (t - s c)²), s = overlap / power leaves all but overlap² / power.
        gain = overlap * overlap / np.where(power > 0, power, np.float32(1))
        fitted = np.where(power > 0, overlap / np.where(power > 0, power, 1), scale)
        better = -gain < least
        best = np.where(better, fitted, best).astype(np.float32)
        least = np.where(better, -gain, least)
    return np.where(best == 0, np.float32(1), best).astype(np.float32)


def _codes(values: Float32, scale: Float32, fmt: BlockFormat) -> Float32:
    codes: Float32 = values / scale
    np.rint(codes, out=codes)
    np.maximum(codes, -fmt.half, out=codes)
    return np.minimum(codes, fmt.half - 1, out=codes)
