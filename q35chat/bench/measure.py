"""The clock over a `Decoder`: the plan of a run, prefills, steps, and what a step allocates.

Yields each measurement as soon as it is there, so that stopping loses only the one that runs.
Knows no runtime; how tokens are chosen is handed in.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from q35chat.bench.machine import resident
from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.engine.states import Snapshot
from q35chat.errors import CapacityError, Option, Remedy

Choose = Callable[[Array, Array | None], int]
ShouldStop = Callable[[], bool]
_ALLOCATION_STEPS = 16
PROMPT, TOKENS, SHORT = 512, 128, 100


@dataclass(frozen=True, slots=True)
class Plan:
    """A prefill of `prompt` tokens, and `tokens` decode steps behind each of `contexts` (tokens
    that are there already, ascending); everything `repeat` times."""

    prompt: int
    tokens: int
    contexts: tuple[int, ...]
    repeat: int


def make_plan(
    capacity: int,
    *,
    prompt: int | None = None,
    tokens: int | None = None,
    contexts: Sequence[int] = (),
    repeat: int = 5,
) -> Plan:
    """The plan for `capacity` slots; what is not given is chosen so that it fits.

    Contexts that are not given are a short one, half the capacity, and the longest that leaves
    room for the steps. Raises CapacityError for what was given and does not fit.
    """
    if prompt is not None and prompt > capacity:
        what = f"{Option.PROMPT} {prompt} needs {prompt} slots"
        raise _too_much(what, capacity, Remedy.MEASURE_LESS_PROMPT, capacity)
    tokens = _steps(capacity, tokens)
    room = capacity - tokens
    for context in contexts:
        if context > room:
            what = f"a context of {context} with {tokens} steps needs {context + tokens} slots"
            raise _too_much(what, capacity, Remedy.MEASURE_LESS_CONTEXT, room)
    chosen = contexts or [length for length in (SHORT, capacity // 2, room) if length <= room]
    return Plan(prompt or min(PROMPT, capacity), tokens, tuple(sorted(set(chosen))), repeat)


def _steps(capacity: int, tokens: int | None) -> int:
    """Decode steps that leave at least one slot for a context."""
    if tokens is None:
        return max(1, min(TOKENS, capacity // 4))
    if tokens >= capacity:
        what = f"{Option.TOKENS} {tokens} and a context of at least 1 need {tokens + 1} slots"
        raise _too_much(what, capacity, Remedy.MEASURE_LESS_TOKENS, capacity - 1)
    return tokens


def _too_much(what: str, capacity: int, remedy: Remedy, slots: int) -> CapacityError:
    return CapacityError(f"{what}, capacity {capacity}:", remedy, slots=slots)


@dataclass(frozen=True, slots=True)
class Round:
    """What is measured now: number `done` + 1 of `total` rounds."""

    text: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class PrefillRun:
    """`tokens` read behind `context` others. Milliseconds: in all, of that inside the runtime, and
    until the next token was chosen."""

    context: int
    tokens: int
    wall_ms: float
    predict_ms: float
    first_token_ms: float


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """Steps behind `context` tokens. Milliseconds of each step: until its token was chosen, inside
    the runtime, and for choosing. `growth` is by how many bytes the process grew; `bandwidth` is
    what memory gave right after, in bytes per second, None where nobody measured it."""

    context: int
    wall_ms: tuple[float, ...]
    predict_ms: tuple[float, ...]
    choose_ms: tuple[float, ...]
    growth: int
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Python's and numpy's memory of one step, in bytes: the most it holds beyond what was there,
    and what it leaves behind."""

    held: float
    kept: float


Measured = Round | PrefillRun | DecodeRun | Allocation


@dataclass
class Measurement:
    """One run of `plan`. `fresh_choice` makes a function that chooses a token from
    logits [V] and the maxima of their blocks."""

    decoder: Decoder
    plan: Plan
    fresh_choice: Callable[[], Choose]
    should_stop: ShouldStop
    image_token: int | None = None
    _ids: Array = field(init=False)

    def __post_init__(self) -> None:
        ids = np.random.default_rng(0).integers(0, self.decoder.vocab_size, self.decoder.capacity)
        ids[ids == self.image_token] = 0
        self._ids = ids

    def run(self) -> Iterator[Measured]:
        """Everything, in order; ends early when it should stop."""
        rounds = self.plan.repeat * (1 + len(self.plan.contexts))
        yield Round("warming up", 0, rounds)
        self._warm_up()
        for number in range(self.plan.repeat):
            yield Round(f"prefill of {self.plan.prompt} tokens", number, rounds)
            self.decoder.reset()
            if (prefill := self._prefill(self.plan.prompt)) is None:
                return
            yield prefill
        base = None
        for place, context in enumerate(self.plan.contexts, start=1):
            done = place * self.plan.repeat
            yield Round(f"reading {context} tokens", done, rounds)
            base = self._go_to(context, base)
            if base is None:
                return
            yield from self._at(base, done, rounds)
            if self.should_stop():
                return

    def _at(self, base: Snapshot, done: int, rounds: int) -> Iterator[Measured]:
        """All rounds behind the tokens of `base`; what is allocated once, at the first context."""
        decoder, context = self.decoder, base.count
        more = min(self.plan.prompt, decoder.capacity - context)
        for number in range(self.plan.repeat):
            yield Round(f"decode behind {context} tokens", done + number, rounds)
            decoder.restore(base)
            if (steps := self._decode()) is None:
                return
            yield steps
            decoder.restore(base)
            if (prefill := self._prefill(more)) is None:
                return
            yield prefill
        if context == self.plan.contexts[0]:
            decoder.restore(base)
            yield self._allocation()

    def _warm_up(self) -> None:
        """A graph is slow when it sees a shape for the first time."""
        self.decoder.reset()
        if self._prefill(self.plan.prompt) is None:
            return
        if self.decoder.used == self.decoder.capacity:
            self.decoder.reset()
            self._prefill(1)
        self.decoder.step(0)

    def _go_to(self, context: int, base: Snapshot | None) -> Snapshot | None:
        """Read on from `base` until `context` tokens are there; None when stopped."""
        if base is None:
            self.decoder.reset()
        else:
            self.decoder.restore(base)
        if self._prefill(context - self.decoder.used) is None:
            return None
        return self.decoder.snapshot()

    def _prefill(self, count: int) -> PrefillRun | None:
        decoder, context = self.decoder, self.decoder.used
        positions = np.tile(np.arange(context, context + count), (3, 1))
        choose, predict = self.fresh_choice(), 0.0
        started = perf_counter()
        for _ in decoder.chunks(self._ids[context : context + count], positions):
            predict += decoder.predict_ms
            if self.should_stop():
                return None
        read = perf_counter()
        choose(decoder.logits(), decoder.maxima())
        chosen = perf_counter()
        wall, first = (read - started) * 1e3, (chosen - started) * 1e3
        return PrefillRun(context, count, wall, predict, first)

    def _decode(self) -> DecodeRun | None:
        decoder, choose = self.decoder, self.fresh_choice()
        context, before = decoder.used, resident()
        wall, predict, choice = [], [], []
        token = choose(decoder.logits(), decoder.maxima())
        for _ in range(self.plan.tokens):
            if self.should_stop():
                return None
            started = perf_counter()
            logits = decoder.step(token)
            stepped = perf_counter()
            token = choose(logits, decoder.maxima())
            chosen = perf_counter()
            wall.append((chosen - started) * 1e3)
            predict.append(decoder.predict_ms)
            choice.append((chosen - stepped) * 1e3)
        growth = resident() - before
        return DecodeRun(context, tuple(wall), tuple(predict), tuple(choice), growth)

    def _allocation(self) -> Allocation:
        """Counted in a pass of its own: counting makes a step slow."""
        decoder, choose, held, kept = self.decoder, self.fresh_choice(), [], []
        token = choose(decoder.logits(), decoder.maxima())
        tracemalloc.start()
        try:
            for _ in range(min(self.plan.tokens, _ALLOCATION_STEPS)):
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                token = choose(decoder.step(token), decoder.maxima())
                after, peak = tracemalloc.get_traced_memory()
                held.append(peak - before)
                kept.append(after - before)
        finally:
            tracemalloc.stop()
        return Allocation(statistics.median(held), statistics.median(kept))
