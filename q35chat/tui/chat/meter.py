"""The numbers behind the meters, as they stand at one moment.

Fed with batches of events; answers with a `Reading` that widgets draw. Knows no widget. What it
reckons while a turn runs gives way to what the turn tells of itself once it has ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import PrefillProgress, Usage, VisionProgress, shared_times
from q35chat.chat.service import Forecast, ModelInfo, Step
from q35chat.text import percentile
from q35chat.tui.chat.running_turn import Batch
from q35chat.tui.text import route_words

SHOWN_STEPS: Final = 120
_KEPT_STEPS: Final = 2 * SHOWN_STEPS  # the oldest run shown is whole: none is so long
WARN_AT: Final = 0.90
FULL_AT: Final = 0.98
_RATE_WINDOW: Final = 32
_NEARLY: Final = 0.99

Level = Literal["normal", "warning", "full"]


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """Work before the first token: `done` of `total`, seconds left (None while unknown). Where
    nobody can tell, `total` is 0 and `spent_s` says how long it has been. `reckoned`: the share is
    of the time that such work took before.
    """

    label: str
    done: int
    total: int
    tokens_per_s: float = 0.0
    eta_s: float | None = None
    spent_s: float = 0.0
    reckoned: bool = False

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """KV slots: held by what was said before, by this turn, and free; together they are `total`.

    This turn is the one being answered, or the draft; there is none while nothing is written.
    """

    total: int = 0
    kept: int = 0
    turn: int = 0

    @property
    def used(self) -> int:
        """Slots held by all turns."""
        return min(self.total, self.kept + self.turn)

    @property
    def free(self) -> int:
        """Slots nothing holds."""
        return max(0, self.total - self.kept - self.turn)

    @property
    def over(self) -> int:
        """Slots that a draft wants and that are not there."""
        return max(0, self.kept + self.turn - self.total)

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
    """All that the meters show. Times in milliseconds; empty and zero mean not known yet.

    `route` is how the prompt was read, where there was a choice; `details` is whether what a step
    is made of is to be shown.
    """

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
    progress: WaitProgress | None = None
    route: str = ""
    running: bool = False
    details: bool = False


@dataclass(slots=True)
class Meter:
    """Accumulates one conversation's numbers; `clock` is in seconds. `vision_pace` are the seconds
    that a token of a picture took, by the name of the model; several meters may share it."""

    clock: Callable[[], float] = time.monotonic
    vision_pace: dict[str, float] = field(default_factory=dict)
    model: ModelInfo | None = None
    capacity: Capacity = Capacity()
    running: bool = False
    made: int = 0
    _wall: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_STEPS))
    _predict: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_STEPS))
    _ended: Usage | None = None
    _steps_seen: int = 0
    _before: int = 0
    _started: float = 0.0
    _stage_started: float = 0.0
    _first_token_s: float | None = None
    _progress: WaitProgress | None = None
    _looking: VisionProgress | None = None
    _route: str = ""

    def idle(self, conversation: Conversation) -> None:
        """Nothing runs: the slots that are held, and the numbers of the last answer where the
        present model gave it."""
        self.model = conversation.model
        self.running = False
        self._progress = None
        self.capacity = Capacity(self.model.capacity, conversation.used_slots)
        steps = conversation.steps
        mine = bool(steps) and steps[-1].model == self.model.name
        self._show(steps[-1].usage if mine else None)
        self._learn_from(steps)

    def expect(self, forecast: Forecast) -> None:
        """Show what a draft would take."""
        if not self.running:
            self.capacity = Capacity(self.capacity.total, forecast.used_slots, forecast.turn_slots)

    def begin(self) -> None:
        """A turn starts now."""
        self._show(None)
        self.running = True
        self._before = self.capacity.kept
        self._started = self._stage_started = self.clock()
        self._progress, self._looking = WaitProgress("preparing", 0, 0), None

    def take(self, batch: Batch) -> None:
        """Account for everything in a batch."""
        if batch.plan is not None:
            plan = batch.plan
            kept = min(self._before, plan.prompt_tokens)
            self.capacity = Capacity(plan.capacity, kept, plan.prompt_tokens - kept)
            self._stage_started = self.clock()
        if batch.vision is not None:
            self._look(batch.vision)
        if batch.prefill is not None:
            self._progress, self._looking = _prefill(batch.prefill), None
        if batch.tokens:
            self._take_tokens(batch)
        if batch.finished is not None:
            self._show(batch.finished.usage)

    def _show(self, ended: Usage | None) -> None:
        """The numbers of a turn that has ended, or none."""
        self._ended = ended
        wall = ended.timings.wall_ms if ended else ()
        self._wall = deque(wall, _KEPT_STEPS)
        self._predict = deque(ended.timings.predict_ms if ended else (), _KEPT_STEPS)
        self._steps_seen = len(wall)
        self.made = ended.completion_tokens if ended else 0
        first = ended.timings.first_token_ms if ended else 0.0
        self._first_token_s = first / 1000 if first else None
        self._route = route_words(ended.timings) if ended else ""

    def _take_tokens(self, batch: Batch) -> None:
        made = [token for token in batch.tokens for _ in range(token.made)]
        steps = [token for token in made if token.wall_ms or token.predict_ms]  # not the first
        if self._first_token_s is None:
            self._first_token_s = self.clock() - self._started
        self._progress = self._looking = None
        self._wall.extend(token.wall_ms for token in steps)
        self._predict.extend(token.predict_ms for token in steps)
        self._steps_seen += len(steps)
        self.made += len(made)
        total, kept = self.capacity.total, self.capacity.kept
        turn = max(0, total - batch.tokens[-1].slots_free - kept)
        self.capacity = Capacity(total, kept, turn)

    def _look(self, vision: VisionProgress) -> None:
        """Pictures are encoded: how long that takes is learned for the next ones."""
        spent = self.clock() - self._stage_started
        self._looking = vision
        if vision.tokens_done and spent > 0 and self.model is not None:
            self.vision_pace[self.model.name] = spent / vision.tokens_done

    def _learn_from(self, steps: Sequence[Step]) -> None:
        """How long pictures took, from answers of the present model that are kept."""
        if self.model is None or self.model.name in self.vision_pace:
            return
        for question, answer in pairwise(steps):
            tokens = sum(picture.tokens for picture in question.turn.attachments)
            spent = answer.usage.timings.vision_ms / 1000 if answer.usage else 0.0
            if tokens and spent and answer.model == self.model.name:
                self.vision_pace[self.model.name] = spent / tokens

    def _seen(self, vision: VisionProgress) -> WaitProgress:
        """How far the pictures are by now: a picture is encoded in one go, so of the time that it
        takes by what earlier ones took; before the first, how long it has been."""
        spent = self.clock() - self._stage_started
        label = "looking at the picture" if vision.total == 1 else "looking at pictures"
        pace = self.vision_pace.get(self.model.name, 0.0) if self.model is not None else 0.0
        expected = pace * vision.tokens
        if expected <= 0:
            if not vision.done:
                return WaitProgress(label, 0, 0, spent_s=spent)
            left = spent / vision.done * (vision.total - vision.done)
            return WaitProgress(label, vision.done, vision.total, eta_s=left)
        share = max(vision.tokens_done / vision.tokens, min(spent / expected, _NEARLY))
        left = max(0.0, expected - spent)
        return WaitProgress(label, round(100 * share), 100, eta_s=left, reckoned=True)

    def reading(self) -> Reading:
        """What to show now."""
        runs = tuple(self._predict)
        wall = shared_times(tuple(self._wall), runs)[-SHOWN_STEPS:]
        predict = shared_times(runs, runs)[-SHOWN_STEPS:]
        step = self._ended.timings.step_ms if self._ended else _mean(wall[-_RATE_WINDOW:])
        return Reading(
            capacity=self.capacity,
            model=self.model,
            steps=wall,
            first_step=self._steps_seen - len(wall),
            p50=percentile(wall, 50),
            p95=percentile(wall, 95),
            predict=_mean(predict),
            wall=_mean(wall),
            tokens_per_s=1000 / step if step else 0.0,
            first_token_s=self._first_token_s,
            made=self.made,
            progress=self._seen(self._looking) if self._looking else self._progress,
            route=self._route,
            running=self.running,
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _prefill(prefill: PrefillProgress) -> WaitProgress:
    left = prefill.total - prefill.done
    eta = left / prefill.tokens_per_s if prefill.tokens_per_s > 0 else None
    return WaitProgress("reading", prefill.done, prefill.total, prefill.tokens_per_s, eta)
