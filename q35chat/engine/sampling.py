"""The next token from logits: penalties, temperature, filters, and a seeded draw.

Pure functions over one float32 vector [V], composed by `Sampler`. Order and meaning are those of
transformers' `generate`: repetition penalty, temperature, top-k, top-p, min-p; the presence
penalty, which transformers lacks, follows the repetition penalty and counts generated tokens
only. Filters return the indices they keep, so that each works on what the one before it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import numpy as np

from q35chat.engine.session import Array
from q35chat.errors import RuntimeFailure

_ROWS = 64
_FIRST_NUCLEUS = 1024
_ONE = np.float32(1)


class SamplingRules(Protocol):
    """How the next token is chosen."""

    @property
    def temperature(self) -> float:
        """Divides the logits; 0 is greedy."""

    @property
    def top_k(self) -> int:
        """How many of the best are kept; 0 is off."""

    @property
    def top_p(self) -> float:
        """The probability mass that is kept; 1 is off."""

    @property
    def min_p(self) -> float:
        """The least probability, as a share of the best one's; 0 is off."""

    @property
    def presence_penalty(self) -> float:
        """Subtracted once from every id that was generated; 0 is off."""

    @property
    def repetition_penalty(self) -> float:
        """Divides positive logits of every id seen; 1 is off."""


class Sampler:
    """The rules, what was seen, and a generator of its own.

    `prompt` are the ids that the repetition penalty counts before anything is generated. The
    same seed, prompt and logits give the same tokens.
    """

    def __init__(self, rules: SamplingRules, prompt: Iterable[int], seed: int | None) -> None:
        self._rules = rules
        self._filters = _filters(rules)
        self._random = np.random.default_rng(seed)
        self._seen = set(prompt) if rules.repetition_penalty != 1.0 else set[int]()
        self._generated: set[int] = set()

    def __call__(self, logits: Array) -> int:
        """Choose from `logits` [V], which stay as they are. Raises RuntimeFailure on NaN."""
        scores = self._penalised(logits)
        temperature = np.float32(self._rules.temperature)
        token = _best(scores) if temperature == 0.0 else self._drawn(scores, temperature)
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

    def _drawn(self, logits: Array, temperature: np.float32) -> int:
        scores, ids = logits, None
        with np.errstate(over="ignore"):
            if self._rules.top_k > 0:  # few can be left: divide only those
                ids = contenders(scores, self._rules.top_k, temperature)
                scores = scores[ids]
            scores = scores / temperature
        if not np.isfinite(scores.max()):  # nothing to weigh: as cold as greedy, or broken
            return _best(logits)
        for keep in self._filters:
            kept = keep(scores)
            scores = scores[kept]
            ids = kept if ids is None else ids[kept]
        place = draw(scores, self._random.random())
        return place if ids is None else int(ids[place])


def _best(scores: Array) -> int:
    best = int(scores.argmax())
    if scores[best] > -np.inf:
        return best
    problem = "NaN" if np.isnan(scores[best]) else "no finite"
    raise RuntimeFailure(f"the model computed {problem} logits: verify the bundle, export it again")


def _filters(rules: SamplingRules) -> tuple[Callable[[Array], Array], ...]:
    """The filters that are on, in order."""
    filters: list[Callable[[Array], Array]] = []
    if rules.top_k > 0:
        filters.append(partial(top_k, k=rules.top_k))
    if rules.top_p < 1.0:
        filters.append(partial(top_p, p=rules.top_p))
    if rules.min_p > 0.0:
        filters.append(partial(min_p, p=rules.min_p))
    return tuple(filters)


def penalise_repetition(logits: Array, seen: Iterable[int], penalty: float) -> Array:
    """Logits of `seen` ids moved towards minus infinity: divided if positive, else multiplied."""
    ids = _indices(seen)
    chosen = logits[ids]
    penalised = logits.copy()
    penalised[ids] = np.where(
        chosen < 0, chosen * np.float32(penalty), chosen / np.float32(penalty)
    )
    return penalised


def penalise_presence(logits: Array, generated: Iterable[int], penalty: float) -> Array:
    """Logits of `generated` ids lowered by `penalty`, once however often they came."""
    penalised = logits.copy()
    penalised[_indices(generated)] -= np.float32(penalty)
    return penalised


def top_k(scores: Array, k: int) -> Array:
    """Indices of the `k` largest scores, and of those equal to the smallest of them."""
    if k >= len(scores):
        return np.arange(len(scores))
    candidates = contenders(scores, k)
    values = scores[candidates]
    kth = np.partition(values, len(values) - k)[len(values) - k]
    best: Array = candidates[values >= kth]
    return best


def top_p(scores: Array, p: float) -> Array:
    """Indices, best first, of the fewest best scores whose probabilities sum to `p`."""
    weights = np.exp(scores - scores.max())
    wanted = p * weights.sum(dtype=np.float64)
    count = min(_FIRST_NUCLEUS, len(scores))
    while True:
        best = top_k(scores, count)
        order = best[np.argsort(-scores[best], kind="stable")]
        chosen = weights[order].astype(np.float64)
        inside = np.cumsum(chosen) - chosen < wanted
        inside[0] = True
        if not inside[-1] or len(order) == len(scores):
            nucleus: Array = order[inside]
            return nucleus
        count = min(count * 8, len(scores))


def min_p(scores: Array, p: float) -> Array:
    """Indices of scores with at least `p` times the probability of the best."""
    return np.flatnonzero(np.exp(scores - scores.max()) >= np.float32(p))


def draw(scores: Array, chance: float) -> int:
    """The index that `chance` in [0, 1) falls on when probabilities are laid end to end."""
    ends = np.cumsum(np.exp(scores - scores.max()), dtype=np.float64)
    place = int(np.searchsorted(ends, chance * ends[-1], side="right"))
    return min(place, len(scores) - 1)


def contenders(scores: Array, k: int, temperature: np.float32 = _ONE) -> Array:
    """Indices, rising, among which are the `k` largest of `scores` / `temperature` and all that
    equal the smallest of them; all indices where a score is NaN.

    One pass over the vector, where a partition of all of it would take several: of the columns of
    a matrix of its scores, only those count whose best is among the `k` best of columns. Division
    keeps the order, so that dividing these is enough.
    """
    columns = len(scores) // _ROWS
    if columns <= k:
        return np.arange(len(scores))
    inside = columns * _ROWS
    best = scores[:inside].reshape(_ROWS, columns).max(axis=0) / temperature
    ordered = np.partition(best, (columns - k, columns - 1))
    if np.isnan(ordered[-1]):
        return np.arange(len(scores))
    chosen = np.flatnonzero(best >= ordered[columns - k])
    rows = np.arange(0, inside, columns)
    ids: Array = np.concatenate(
        [np.add.outer(rows, chosen).ravel(), np.arange(inside, len(scores))]
    )
    return ids


def _indices(ids: Iterable[int]) -> Array:
    return np.fromiter(ids, np.int64)
