"""A plain numpy model of `MatMulNBits` and `QMoE`: block-quantised weights, inputs rounded to int8.

At accuracy level 4 ONNX Runtime rounds each block of an input row to int8 with the scale
`peak / 127` and multiplies integers. So a product errs by at most half a step for each input
value: |error_n| <= sum over blocks b of peak_b / 254 * sum |w_nb|. That bound is derived, not
measured; what is measured is that the runtime computes exactly this model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def in_blocks(rows: Floats, block: int) -> Floats:
    """`[R, K]` as `[R, blocks, block]`, the last block padded with zeros."""
    padding = -rows.shape[1] % block
    return np.pad(rows, ((0, 0), (0, padding))).reshape(len(rows), -1, block)


def rounded_to_int8(x: Floats, block: int) -> Floats:
    """`x` [M, K] as int8 codes times one scale a block."""
    blocks = in_blocks(x, block)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    safe = np.where(scale == 0, np.float32(1), scale)
    codes = np.rint(blocks * (1 / safe))
    rounded: Floats = (codes * scale).reshape(len(x), -1)[:, : x.shape[1]]
    return rounded


def error_bound(x: Floats, weights: Floats, block: int) -> Floats:
    """The most that rounding `x` [M, K] can change `x @ weights.T` [M, N]."""
    half_step = np.abs(in_blocks(x, block)).max(-1) / np.float32(254)
    bound: Floats = half_step @ np.abs(in_blocks(weights, block)).sum(-1).T
    return bound


def mixture(
    x: Floats,
    scores: Floats,
    gate_up: Floats,
    down: Floats,
    chosen: int,
    *,
    block: int | None = None,
    normalised: bool = True,
) -> Floats:
    """What a mixture of experts makes of each row, token by token.

    Args:
        x: rows `[T, H]`.
        scores: what the router says, `[T, E]`.
        gate_up: `[E, 2I, H]`, the rows of gate and up in turn.
        down: `[E, H, I]`.
        chosen: experts that a token goes through.
        block: round what goes into a product to int8 in such blocks.
        normalised: the weights of the chosen sum to one.
    """

    def read(rows: Floats) -> Floats:
        return rows if block is None else rounded_to_int8(rows, block)

    found = np.zeros_like(x)
    for token, row in enumerate(x):
        shares = np.exp(scores[token] - scores[token].max())
        shares /= shares.sum()
        best = np.argsort(-shares, kind="stable")[:chosen]
        whole = shares[best].sum() if normalised else 1
        for expert in best:
            both = read(row[None]) @ gate_up[expert].T
            inner = both[:, 0::2] / (1 + np.exp(-both[:, 0::2])) * both[:, 1::2]
            found[token] += shares[expert] / whole * (read(inner) @ down[expert].T)[0]
    return found
