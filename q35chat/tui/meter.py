"""The numbers behind the meters, as they stand at one moment.

Fed with batches of events; answers with a `Reading` that widgets draw. Knows no widget.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from q35chat.chat.events import PrefillProgress, VisionProgress
from q35chat.chat.service import Forecast, ModelInfo
from q35chat.tui.feed import Batch

SHOWN_STEPS: Final = 120
WARN_AT: Final = 0.90
FULL_AT: Final = 0.98
_RATE_WINDOW: Final = 32

Level = Literal["normal", "warning", "full"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Work before the first token: `done` of `total`, seconds left (None while unknown)."""

    label: str
    done: int
    total: int
    tokens_per_s: float = 0.0
    eta_s: float | None = None

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """KV slots: held by earlier turns, by this turn (or its forecast), and free."""

    total: int = 0
    kept: int = 0
    turn: int = 0
    whose: Literal["last turn", "this turn", "next turn"] = "last turn"

    @property
    def used(self) -> int:
        """Slots held by all turns."""
        return min(self.total, self.kept + self.turn)

    @property
    def free(self) -> int:
        """Slots nothing holds."""
        return max(0, self.total - self.kept - self.turn)

    @property
    def fraction(self) -> float:
        """Used share, from 0 to 1."""
        return self.used / self.total if self.total else 0.0

    @property
    def level(self) -> Level:
        """How close to the end."""
        if self.fraction >= FULL_AT:
            return "full"
        return "warning" if self.fraction >= WARN_AT else "normal"


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the meters show. Times in milliseconds; empty and zero mean not known yet."""

    capacity: Capacity = Capacity()
    model: ModelInfo | None = None
    steps: tuple[float, ...] = ()
    first_step: int = 0
    p50: float = 0.0
    p95: float = 0.0
    predict: float = 0.0
    wall: float = 0.0
    tokens_per_s: float = 0.0
    first_token_s: float | None = None
    made: int = 0
    progress: Progress | None = None
    running: bool = False


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank); 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 100) // 100) - 1))]


@dataclass(slots=True)
class Meter:
    """Accumulates one conversation's numbers; `clock` is in seconds."""

    clock: Callable[[], float] = time.monotonic
    model: ModelInfo | None = None
    capacity: Capacity = Capacity()
    running: bool = False
    made: int = 0
    _wall: deque[float] = field(default_factory=lambda: deque(maxlen=SHOWN_STEPS))
    _predict: deque[float] = field(default_factory=lambda: deque(maxlen=SHOWN_STEPS))
    _steps_seen: int = 0
    _last_turn: int = 0
    _started: float = 0.0
    _stage_started: float = 0.0
    _first_token_s: float | None = None
    _progress: Progress | None = None

    def idle(self, model: ModelInfo, used: int) -> None:
        """Nothing runs; `used` slots are held."""
        self.model = model
        self.running = False
        self._progress = None
        last = self.capacity.turn if self.capacity.whose != "next turn" else self._last_turn
        self._last_turn = last if last <= used and self.capacity.total == model.capacity else 0
        self.capacity = Capacity(model.capacity, used - self._last_turn, self._last_turn)

    def expect(self, forecast: Forecast) -> None:
        """Show what a draft would take."""
        if not self.running:
            used, turn = forecast.used_slots, forecast.turn_slots
            self.capacity = Capacity(self.capacity.total, used, turn, "next turn")

    def begin(self) -> None:
        """A turn starts now."""
        self.running = True
        self.made = 0
        self._started = self._stage_started = self.clock()
        self._first_token_s = None
        self._progress = Progress("preparing", 0, 0)
        self._wall.clear()
        self._predict.clear()
        self._steps_seen = 0

    def take(self, batch: Batch) -> None:
        """Account for everything in a batch."""
        if batch.plan is not None:
            plan = batch.plan
            self.capacity = Capacity(
                plan.capacity, plan.reused_tokens, plan.new_tokens, "this turn"
            )
            self._stage_started = self.clock()
        if batch.vision is not None:
            self._progress = self._vision(batch.vision)
        if batch.prefill is not None:
            self._progress = _prefill(batch.prefill)
        if batch.tokens:
            self._take_tokens(batch)
        if batch.finished is not None and batch.finished.usage.timings.first_token_ms:
            self._first_token_s = batch.finished.usage.timings.first_token_ms / 1000

    def _take_tokens(self, batch: Batch) -> None:
        steps = [token for token in batch.tokens if token.id is not None]
        if self._first_token_s is None:
            self._first_token_s = self.clock() - self._started
        self._progress = None
        self._wall.extend(token.wall_ms for token in steps)
        self._predict.extend(token.predict_ms for token in steps)
        self._steps_seen += len(steps)
        self.made += len(steps)
        total, kept = self.capacity.total, self.capacity.kept
        turn = max(0, total - batch.tokens[-1].slots_free - kept)
        self.capacity = Capacity(total, kept, turn, "this turn")

    def _vision(self, vision: VisionProgress) -> Progress:
        spent = self.clock() - self._stage_started
        left = spent / vision.done * (vision.total - vision.done) if vision.done else None
        label = "looking at the picture" if vision.total == 1 else "looking at pictures"
        return Progress(label, vision.done, vision.total, eta_s=left)

    def reading(self) -> Reading:
        """What to show now."""
        wall, predict = list(self._wall), list(self._predict)
        recent = wall[-_RATE_WINDOW:]
        return Reading(
            capacity=self.capacity,
            model=self.model,
            steps=tuple(wall),
            first_step=self._steps_seen - len(wall),
            p50=percentile(wall, 0.50),
            p95=percentile(wall, 0.95),
            predict=sum(predict) / len(predict) if predict else 0.0,
            wall=sum(wall) / len(wall) if wall else 0.0,
            tokens_per_s=1000 * len(recent) / sum(recent) if sum(recent) > 0 else 0.0,
            first_token_s=self._first_token_s,
            made=self.made,
            progress=self._progress,
            running=self.running,
        )


def _prefill(prefill: PrefillProgress) -> Progress:
    left = prefill.total - prefill.done
    eta = left / prefill.tokens_per_s if prefill.tokens_per_s > 0 else None
    return Progress("reading", prefill.done, prefill.total, prefill.tokens_per_s, eta)
