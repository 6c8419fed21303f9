"""How far one model's next tokens lie from another's, over the same text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_ROWS = 64


@dataclass(frozen=True, slots=True)
class Divergence:
    """Kullback-Leibler divergence from the reference in nats (mean, median, 99th percentile), the
    share of equal first choices, and the perplexity over the reference's."""

    mean: float
    median: float
    p99: float
    top_1: float
    perplexity: float


def divergence(wanted: Float32, found: Float32, following: Int64) -> Divergence:
    """Compare logits `[tokens, V]` of the reference and of another; `following` `[tokens]` are the
    tokens that really came next."""
    each, surprise = np.empty(len(following)), np.empty(len(following))
    for start in range(0, len(following), _ROWS):
        some = slice(start, start + _ROWS)
        first, second = log_softmax(wanted[some]), log_softmax(found[some])
        each[some] = (np.exp(first) * (first - second)).sum(-1)
        rows = np.arange(len(first))
        surprise[some] = (first - second)[rows, following[some]]
    return Divergence(
        mean=float(each.mean()),
        median=float(np.median(each)),
        p99=float(np.quantile(each, 0.99)),
        top_1=float((wanted.argmax(-1) == found.argmax(-1)).mean()),
        perplexity=float(np.exp(surprise.mean())),
    )


def log_softmax(logits: Float32) -> Float64:
    """`log(softmax(logits))` over the last axis."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    result: Float64 = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
