"""The gated delta rule itself, as both of its kernels define it, in numpy and FP32.

For each value head the state `S` `[DV, DK]` decays by `exp(g)`, what the key already recalls is
taken from the value, and the rest, times beta, is written back: `S += beta (v - S k) k^T`. The
output is `S q * scale`. Query and key come normalised; a value head `h` reads key head
`h // (NV / NK)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
CHUNK = 64


def chunked(
    query: Array, key: Array, value: Array, beta: Array, state: Array, decay: Array, scale: float
) -> tuple[Array, Array]:
    """The rule over all tokens, in chunks solved as triangular systems.

    Args:
        query, key: `[T, NK, DK]`; value: `[T, NV, DV]`; beta, decay: `[T, NV]`.
        state: `[NV, DV, DK]`.

    Returns:
        The output `[T, NV, DV]` and the state after the last token, FP32.
    """
    repeat = value.shape[1] // key.shape[1]
    heads = [
        np.moveaxis(array.astype(np.float32), 0, 1)
        for array in (np.repeat(query, repeat, 1), np.repeat(key, repeat, 1), value)
    ]
    rates = [np.moveaxis(array.astype(np.float32), 0, 1) for array in (beta, decay)]
    state = state.astype(np.float32)
    outputs = []
    for start in range(0, query.shape[0], CHUNK):
        part = slice(start, start + CHUNK)
        q, k, v = (array[:, part] for array in heads)
        b, g = (array[:, part] for array in rates)
        out, state = _chunk(q * np.float32(scale), k, v, b, g, state)
        outputs.append(out)
    return np.moveaxis(np.concatenate(outputs, axis=1), 0, 1), state


def _chunk(
    q: Array, k: Array, v: Array, beta: Array, decay: Array, state: Array
) -> tuple[Array, Array]:
    """One chunk: `[NV, L, ...]` each, state `[NV, DV, DK]`."""
    length = q.shape[1]
    total = np.cumsum(decay, axis=1)
    lower = np.tril(np.ones((length, length), dtype=bool))
    pairwise = np.exp(np.where(lower, total[:, :, None] - total[:, None, :], -np.inf))
    since = np.exp(total)[..., None]
    gram = k @ k.swapaxes(1, 2) * pairwise * beta[..., None]
    system = np.where(np.eye(length, dtype=bool), np.float32(1), gram)
    recalled = (k * since) @ state.swapaxes(1, 2)
    written = np.linalg.solve(system, (v - recalled) * beta[..., None])
    inside = (q @ k.swapaxes(1, 2) * pairwise) @ written
    outputs = (q * since) @ state.swapaxes(1, 2) + inside
    left = np.exp(total[:, -1:] - total)[..., None]
    kept = state * np.exp(total[:, -1])[:, None, None]
    return outputs, kept + written.swapaxes(1, 2) @ (k * left)
