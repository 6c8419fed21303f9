"""The next token from logits: penalties, temperature, filters, and a seeded draw.

Pure functions over one float32 vector [V], composed by `Sampler`. Order and meaning are those of
transformers' `generate`: repetition penalty, temperature, top-k, top-p, min-p; the presence
penalty, which transformers lacks, follows the repetition penalty and counts generated tokens
only. The first filter returns the indices it keeps, the best first, so that those behind it only
say how many of them they keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

import numpy as np

from q35chat.engine.rules import SamplingSettings
from q35chat.engine.session import Array
from q35chat.errors import RuntimeFailure

_BLOCK = 64
_FIRST_NUCLEUS = 1024
_CHANCES = 64
_ONE = np.float32(1)
_NEIGHBOURS = 2**-22  # numbers that one division can join are closer, as a share
_SMALLEST_NORMAL = 2**-126


class Sampler:
    """The rules, what was seen, and a generator of its own.

    `prompt` are the ids that the repetition penalty counts before anything is generated. The
    same seed, prompt and logits give the same tokens.
    """

    def __init__(self, rules: SamplingSettings, prompt: Iterable[int], seed: int | None) -> None:
        self._rules = rules
        self._temperature = np.float32(rules.temperature)
        self._chances = _chances(np.random.default_rng(seed))
        self._seen = set(prompt) if rules.repetition_penalty != 1.0 else set[int]()
        self._generated: set[int] = set()

    def __call__(self, logits: Array, maxima: Array | None = None) -> int:
        """Choose from `logits` [V], which stay as they are. Raises RuntimeFailure on NaN.

        `maxima` are the largest of each block of neighbours, where they are known already.
        """
        scores = self._penalised(logits)
        if scores is not logits:
            maxima = None
        cold = self._temperature == 0.0
        token = _best(scores, maxima) if cold else self._drawn(scores, maxima)
        self.observe(token)
        return token

    def observe(self, token: int) -> None:
        """Count a token that was put into the sequence without being sampled."""
        self._generated.add(token)
        self._seen.add(token)

    def _penalised(self, logits: Array) -> Array:
        rules = self._rules
        if rules.repetition_penalty != 1.0:
            logits = penalise_repetition(logits, self._seen, rules.repetition_penalty)
        if rules.presence_penalty != 0.0:
            logits = penalise_presence(logits, self._generated, rules.presence_penalty)
        return logits

    def _drawn(self, logits: Array, maxima: Array | None) -> int:
        scores, ids = logits, None
        if self._rules.top_k > 0:  # few can be left: divide only those
            ids = contenders(scores, self._rules.top_k, self._temperature, maxima)
            scores = scores[ids]
        with np.errstate(over="ignore"):
            scores = scores / self._temperature
        best = scores.max()
        if not isfinite(best):  # nothing to weigh: as cold as greedy, or broken
            return _best(logits)
        kept = self._first_kept(scores)
        weights = np.exp((scores if kept is None else scores[kept]) - best)
        ends = weights.cumsum(dtype=np.float64)
        place = draw(ends[: self._count(weights, ends)], next(self._chances))
        for indices in (kept, ids):
            place = place if indices is None else int(indices[place])
        return place

    def _first_kept(self, scores: Array) -> Array | None:
        """What the first filter that is on leaves; best first but for min-p. None for all."""
        rules = self._rules
        if rules.top_k > 0:
            return best_first(scores, rules.top_k)
        if rules.top_p < 1.0:
            return top_p(scores, rules.top_p)
        return min_p(scores, rules.min_p) if rules.min_p > 0.0 else None

    def _count(self, weights: Array, ends: Array) -> int:
        """How many of what the first filter left the others leave, from the best on."""
        rules, count = self._rules, len(ends)
        if rules.top_k > 0 and rules.top_p < 1.0:
            count = nucleus(ends, rules.top_p * ends[-1])
        if rules.min_p > 0.0:
            count = min(count, int(np.count_nonzero(weights >= np.float32(rules.min_p))))
        return count


def _best(scores: Array, maxima: Array | None = None) -> int:
    if maxima is not None and isfinite(maxima[block := int(maxima.argmax())]):
        size = len(scores) // len(maxima)
        return block * size + int(scores[block * size : (block + 1) * size].argmax())
    best = int(scores.argmax())
    if scores[best] > -np.inf:
        return best
    problem = "NaN" if np.isnan(scores[best]) else "no finite"
    raise RuntimeFailure(f"the model computed {problem} logits: verify the bundle, export it again")


def masked(logits: Array, allowed: Array) -> Array:
    """`logits` [V] with minus infinity for all that is not `allowed` [V] bool."""
    found: Array = np.where(allowed, logits, np.float32(-np.inf))
    return found


def log_probabilities(logits: Array) -> Array:
    """Their logarithmic softmax, [V] float32."""
    shifted = logits - logits.max()
    found: Array = shifted - np.float32(np.log(np.exp(shifted).sum(dtype=np.float64)))
    return found


def penalise_repetition(logits: Array, seen: Iterable[int], penalty: float) -> Array:
    """Return the logits [V] with those of `seen` ids moved towards minus infinity: divided by
    `penalty` if positive, else multiplied."""
    ids = _indices(seen)
    chosen = logits[ids]
    penalised = logits.copy()
    penalised[ids] = np.where(
        chosen < 0, chosen * np.float32(penalty), chosen / np.float32(penalty)
    )
    return penalised


def penalise_presence(logits: Array, generated: Iterable[int], penalty: float) -> Array:
    """Return the logits [V] with those of `generated` ids lowered by `penalty`, once however often
    they came."""
    penalised = logits.copy()
    penalised[_indices(generated)] -= np.float32(penalty)
    return penalised


def top_k(scores: Array, k: int) -> Array:
    """Return the indices [N] int64 of the `k` largest of `scores` [V], and of those equal to the
    smallest of them."""
    if len(scores) > _BLOCK * k:
        candidates = contenders(scores, k)
        best: Array = candidates[_largest(scores[candidates], k)]
        return best
    return _largest(scores, k)


def best_first(scores: Array, k: int) -> Array:
    """Return the indices of `top_k`, the best first, equal scores in the order of their indices."""
    best = top_k(scores, k)
    ordered: Array = best[np.argsort(-scores[best], kind="stable")]
    return ordered


def top_p(scores: Array, p: float) -> Array:
    """Return the indices [N], best first, of the fewest best of `scores` [V] whose probabilities
    sum to `p`."""
    weights = np.exp(scores - scores.max())
    wanted = p * weights.sum(dtype=np.float64)
    count = min(_FIRST_NUCLEUS, len(scores))
    while True:
        order = best_first(scores, count)
        inside = nucleus(weights[order].cumsum(dtype=np.float64), wanted)
        if inside < len(order) or len(order) == len(scores):
            return order[:inside]
        count = min(count * 8, len(scores))


def nucleus(ends: Array, wanted: float) -> int:
    """The least number of weights that sum to `wanted`, at least one and at most all, by the
    `ends` [N] of weights laid end to end."""
    return 1 + int(ends[:-1].searchsorted(wanted))


def min_p(scores: Array, p: float) -> Array:
    """Return the indices [N] of `scores` [V] with at least `p` times the chance of the best."""
    return np.flatnonzero(np.exp(scores - scores.max()) >= np.float32(p))


def draw(ends: Array, chance: float) -> int:
    """Which of the weights that lie end to end up to `ends` [N] `chance` in [0, 1) falls on."""
    place = int(ends.searchsorted(chance * ends[-1], side="right"))
    return min(place, len(ends) - 1)


def contenders(
    scores: Array, k: int, temperature: np.float32 = _ONE, maxima: Array | None = None
) -> Array:
    """Indices, rising, among which are the `k` largest of `scores` / `temperature` and all that
    equal the smallest of them, and all that are NaN.

    Of blocks of scores only those count whose best is among the `k` best of blocks. `maxima` [B]
    are these bests of neighbours, V / B to a block; else one pass over the vector finds those of
    the columns of a matrix of it, which is faster. Division keeps the order but may join
    neighbours, so blocks a little worse count as well.
    """
    blocks = len(scores) // _BLOCK if maxima is None else len(maxima)
    if blocks <= k:
        return np.arange(len(scores))
    bests = _columns(scores, blocks).max(axis=0) if maxima is None else maxima
    least = float(np.partition(bests, blocks - k)[blocks - k])
    slack = _NEIGHBOURS * max(abs(least), float(temperature) * _SMALLEST_NORMAL)
    below = bests < np.float32(least - slack)  # NaN never is
    chosen = (~below).nonzero()[0]
    if maxima is not None:
        size = len(scores) // blocks
        ids: Array = np.add.outer(chosen * size, np.arange(size)).ravel()
        return ids
    inside = blocks * _BLOCK
    ids = np.add.outer(np.arange(0, inside, blocks), chosen).ravel()
    return ids if inside == len(scores) else np.concatenate([ids, np.arange(inside, len(scores))])


def _columns(scores: Array, columns: int) -> Array:
    """Most of the scores as a matrix of so many columns."""
    return scores[: columns * _BLOCK].reshape(_BLOCK, columns)


def _chances(random: np.random.Generator) -> Iterator[float]:
    while True:
        yield from random.random(_CHANCES).tolist()


def _largest(scores: Array, k: int) -> Array:
    first = len(scores) - k
    if first <= 0:
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, first)[first])


def _indices(ids: Iterable[int]) -> Array:
    return np.fromiter(ids, np.int64)
