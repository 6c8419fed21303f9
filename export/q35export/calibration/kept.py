"""What rounding left of a model: how far its next tokens lie from those of the exact one.

Both heads come in pieces of rows, so that no logits of a whole vocabulary are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from q35export.matrix import Float32
from q35export.precision import LOGIT_GROUP, REFINED_GROUPS

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Kept:
    """Mean Kullback-Leibler divergence from the exact model in nats, share of equal first choices,
    and perplexity over the exact model's."""

    divergence: float
    top_1: float
    perplexity: float

    def said(self) -> str:
        """As an export tells it."""
        return (
            f"keeps {self.top_1 * 100:.0f} % of first choices (KLD {self.divergence:.3f}, "
            f"perplexity × {self.perplexity:.3f})"
        )

    def options(self) -> dict[str, str]:
        """As a manifest has it."""
        return {
            "kld": f"{self.divergence:.4f}",
            "top_1": f"{self.top_1:.3f}",
            "perplexity_ratio": f"{self.perplexity:.3f}",
        }


def compare(
    exact: Float32,
    rounded: Float32,
    following: Int64,
    heads: Iterable[tuple[Float32, Float32]],
    rough: Callable[[], Iterator[Float32]] | None = None,
) -> Kept:
    """Compare what the heads make of two hidden states.

    Args:
        exact: what the exact head reads, `[tokens, H]`.
        rounded: what the rounded head reads.
        following: the token that came next, `[tokens]`.
        heads: some rows of both heads at a time, in order, `[rows, H]` each.
        rough: the same rows of the rounded head as all logits but the largest are made with.
    """
    near = _largest(rounded, rough()) if rough else None
    pieces = rough() if rough else repeat(None)
    one, other = _Softmax(len(exact)), _Softmax(len(exact))
    apart = np.zeros(len(exact))
    start = 0
    for (exact_head, rounded_head), rough_head in zip(heads, pieces, strict=False):
        a = (exact @ exact_head.T).astype(np.float64)
        b = (rounded @ rounded_head.T).astype(np.float64)
        if near is not None and rough_head is not None:
            groups = np.arange(start, start + len(rough_head)) // LOGIT_GROUP
            b = np.where(near[:, groups], b, rounded @ rough_head.T)
        shrunk, weights = one.take(a, start, following)
        apart = apart * shrunk + (weights * (a - b)).sum(-1)
        other.take(b, start, following)
        start += len(exact_head)
    # KL = sum p (a - b) - (log sum exp a - log sum exp b)
    each = apart / one.total - one.log_total() + other.log_total()
    surprise = (one.chosen - one.log_total()) - (other.chosen - other.log_total())
    return Kept(
        divergence=float(each.mean()),
        top_1=float((one.first == other.first).mean()),
        perplexity=float(np.exp(surprise.mean())),
    )


def _largest(rounded: Float32, heads: Iterator[Float32]) -> Bools:
    """Which groups of neighbouring logits hold the largest, `[tokens, groups]`."""
    maxima: list[Float32] = []
    start = 0
    for head in heads:
        groups = np.arange(start, start + len(head)) // LOGIT_GROUP
        _, first = np.unique(groups, return_index=True)
        found = np.maximum.reduceat(rounded @ head.T, first, axis=1)
        if start % LOGIT_GROUP:  # the group that the piece before has begun
            maxima[-1][:, -1] = np.maximum(maxima[-1][:, -1], found[:, 0])
            found = found[:, 1:]
        if found.shape[1]:
            maxima.append(found)
        start += len(head)
    every = np.concatenate(maxima, axis=1)
    count = min(REFINED_GROUPS, every.shape[1])
    largest: Bools = every >= np.partition(every, -count, axis=1)[:, -count, None]
    return largest


class _Softmax:
    """Softmax of rows of logits that come in pieces (Milakov and Gimelshein 2018)."""

    def __init__(self, rows: int) -> None:
        self.total = np.zeros(rows)
        self.first = np.zeros(rows, np.int64)
        self.chosen = np.zeros(rows)
        self._peak = np.full(rows, -np.inf)

    def take(self, logits: Float64, start: int, following: Int64) -> tuple[Float64, Float64]:
        """Take logits `[rows, n]` of the tokens from `start` on: by how much earlier sums shrink,
        `[rows]`, and the exponentials of these, `[rows, n]`."""
        best = logits.argmax(-1)
        here = logits.max(-1)
        self.first = np.where(here > self._peak, best + start, self.first)
        peak = np.maximum(self._peak, here)
        shrunk = np.exp(self._peak - peak)
        weights: Float64 = np.exp(logits - peak[:, None])
        self.total = self.total * shrunk + weights.sum(-1)
        self._peak = peak
        place = following - start
        inside = (place >= 0) & (place < logits.shape[1])
        self.chosen[inside] = logits[inside, place[inside]]
        return shrunk, weights

    def log_total(self) -> Float64:
        """The logarithm of the sum of all exponentials, `[rows]`."""
        found: Float64 = self._peak + np.log(self.total)
        return found
