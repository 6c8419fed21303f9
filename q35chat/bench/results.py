"""A run's measurements as one value, and the medians and quartiles that are said of it.

Pure: no clock, no model, no file.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from q35chat.bench.machine import Memory
from q35chat.bench.measure import Allocation, DecodeRun, Plan, PrefillRun
from q35chat.bench.traffic import Traffic
from q35chat.text import percentile


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured, where, with how many threads; two results compare where it is equal."""

    model: str
    target: str
    precision: str
    capacity: int
    threads: int
    machine: str
    software: str


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """Reading `tokens` tokens behind `context` others; `own_share` of the time of a round, the
    median of them, is the engine's."""

    context: int
    tokens: int
    tokens_per_s: Spread
    first_token_ms: Spread
    own_share: float


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """Steps behind `context` tokens.

    `own_ms` is what a step takes outside the runtime, the median of all steps, `choose_ms` of it
    for choosing the token; `own_share` is that share of all time of a round, the median over the
    rounds: slow steps count there by what they took. `ceiling` is what the read bandwidth measured
    after each round would allow, in tokens/s, and `reached` the share of it that the round reached:
    medians over the rounds, None where no bandwidth is known.
    """

    context: int
    tokens_per_s: Spread
    p50_ms: float
    p95_ms: float
    own_ms: float
    choose_ms: float
    own_share: float
    growth_per_step: float
    ceiling: float | None
    reached: float | None


@dataclass
class Result:
    """What was measured so far; `complete` when nothing is missing."""

    subject: Subject
    plan: Plan
    load_ms: float
    before: Memory
    loaded: Memory
    traffic: Traffic | None = None
    prefills: list[PrefillRun] = field(default_factory=list)
    decodes: list[DecodeRun] = field(default_factory=list)
    allocation: Allocation | None = None
    after: Memory | None = None
    complete: bool = False

    @property
    def bandwidths(self) -> list[float]:
        """Bytes per second, in the order they were measured."""
        return [run.bandwidth for run in self.decodes if run.bandwidth is not None]

    def prefill_points(self) -> Iterator[PrefillPoint]:
        """By context and length, in the order they were measured."""
        kinds = dict.fromkeys((run.context, run.tokens) for run in self.prefills)
        for context, tokens in kinds:
            runs = [r for r in self.prefills if (r.context, r.tokens) == (context, tokens)]
            yield PrefillPoint(
                context,
                tokens,
                Spread.of([tokens / run.wall_ms * 1e3 for run in runs]),
                Spread.of([run.first_token_ms for run in runs]),
                statistics.median(_outside(run.predict_ms, run.wall_ms) for run in runs),
            )

    def decode_points(self) -> Iterator[DecodePoint]:
        """By context, in the order they were measured."""
        for context in dict.fromkeys(run.context for run in self.decodes):
            yield self._decode_point(context, self.steps_at(context))

    def steps_at(self, context: int) -> Sequence[DecodeRun]:
        """The rounds behind `context` tokens."""
        return [run for run in self.decodes if run.context == context]

    def _decode_point(self, context: int, runs: Sequence[DecodeRun]) -> DecodePoint:
        wall = [ms for run in runs for ms in run.wall_ms]
        predict = [ms for run in runs for ms in run.predict_ms]
        own = [whole - inside for whole, inside in zip(wall, predict, strict=True)]
        speed = Spread.of([_speed(run) for run in runs])
        ceilings = [(run, ceiling) for run in runs if (ceiling := self._ceiling(run)) is not None]
        return DecodePoint(
            context=context,
            tokens_per_s=speed,
            p50_ms=percentile(wall, 50),
            p95_ms=percentile(wall, 95),
            own_ms=statistics.median(own),
            choose_ms=statistics.median(ms for run in runs for ms in run.choose_ms),
            own_share=statistics.median(
                _outside(sum(run.predict_ms), sum(run.wall_ms)) for run in runs
            ),
            growth_per_step=statistics.median(run.growth / len(run.wall_ms) for run in runs),
            ceiling=_median(ceiling for _, ceiling in ceilings),
            reached=_median(_speed(run) / ceiling for run, ceiling in ceilings),
        )

    def _ceiling(self, run: DecodeRun) -> float | None:
        if self.traffic is None or run.bandwidth is None:
            return None
        return run.bandwidth / self.traffic.at(run.context + len(run.wall_ms) // 2)


def _outside(predict_ms: float, wall_ms: float) -> float:
    """The share of the time of a round that was not spent inside the runtime."""
    return 1 - predict_ms / wall_ms


def _speed(run: DecodeRun) -> float:
    return len(run.wall_ms) / sum(run.wall_ms) * 1e3


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the quartiles around it, in the unit of what was measured."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)
