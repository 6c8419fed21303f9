"""How a prompt is cut for a graph that accepts only certain lengths, at the least measured cost.

A gear is a length that the prefill graph was converted for; fewer tokens are padded to it. Text
tokens can also go through the decode graph, one by one. Knows lengths and times, no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from q35chat.errors import CapacityError, Remedy

GraphName = Literal["prefill", "decode"]

# What a call costs relative to others until it has been measured: about milliseconds of a 4B model.
_CALL, _TOKEN, _STEP = 128.0, 1.0, 85.0
_IMAGE_ROW = 1e-3  # only to prefer the narrower of two gears,
_SWITCH = 1e-3  # and the fewer changes between graphs


@dataclass(frozen=True, order=True, slots=True)
class Gear:
    """A prefill of `tokens` tokens with `image_rows` rows of picture embeddings."""

    tokens: int
    image_rows: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens `start` to `end` in one call; `gear` None is one decode step."""

    start: int
    end: int
    gear: Gear | None


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """A sequence to be in the state: its first `used` tokens are there already.

    `image_ends[i]` counts picture tokens before place i, so it has one entry more than tokens.
    """

    image_ends: Sequence[int]
    used: int

    @property
    def total(self) -> int:
        """Tokens in all."""
        return len(self.image_ends) - 1

    def longest(self, start: int, gear: Gear) -> int:
        """Where the longest stretch that starts at `start` ends in `gear`."""
        end = min(start + gear.tokens, self.total)
        limit = self.image_ends[start] + gear.image_rows
        while self.image_ends[end] > limit:
            end -= 1
        return end

    def is_image(self, place: int) -> bool:
        """Whether a picture token lies there."""
        return self.image_ends[place + 1] > self.image_ends[place]


class Costs:
    """Measured milliseconds of each call; what was not measured is scaled from what was.

    The first call of a kind does not count: a graph is slow when it sees a shape for the first
    time, and what looks slow would never be tried again.
    """

    def __init__(self) -> None:
        self._measured: dict[Gear | None, float] = {}
        self._seen: set[Gear | None] = set()

    def note(self, gear: Gear | None, milliseconds: float) -> None:
        """Remember the last time of a prefill in `gear`, or of a decode step."""
        if gear in self._seen:
            self._measured[gear] = milliseconds
        self._seen.add(gear)

    def of(self, gear: Gear | None) -> float:
        """What a call takes, in milliseconds as far as anything was measured."""
        if gear in self._measured:
            return self._measured[gear]
        if not self._measured:
            return _prior(gear)
        nearest = min(self._measured, key=lambda known: abs(_prior(known) - _prior(gear)))
        return self._measured[nearest] * _prior(gear) / _prior(nearest)


@dataclass(frozen=True, slots=True)
class Loads:
    """Which graph can run at once, and what it takes to bring in the other one, in milliseconds."""

    ready: GraphName | None = None
    prefill_ms: float = 0.0
    decode_ms: float = 0.0

    def switch(self, current: GraphName | None, to: GraphName) -> float:
        """The cost of running `to` after `current`."""
        if current == to:
            return 0.0
        if current is None and self.ready == to:
            return _SWITCH
        return _SWITCH + (self.prefill_ms if to == "prefill" else self.decode_ms)


@dataclass(frozen=True, slots=True)
class Route:
    """The stretches of a prompt, in order. `restart` reads it again from its first token."""

    stretches: tuple[Stretch, ...]
    restart: bool
    cost_ms: float

    def text(self, count: int, loads: Loads) -> str:
        """How `count` tokens are read on this way, for the meters."""
        steps = sum(stretch.gear is None for stretch in self.stretches)
        gears = [str(stretch.gear.tokens) for stretch in self.stretches if stretch.gear is not None]
        ways = []
        if gears:
            again = " from the first token on" if self.restart else ""
            ways.append(f"prefill {' + '.join(gears)}{again}")
        if steps:
            ways.append(f"decode {steps}")
        if loaded := self._loaded(loads):
            ways[-1] += f", loading {' and '.join(loaded)}"
        return f"{count} tokens: {', then '.join(ways)}, about {self.cost_ms:.0f} ms"

    def _loaded(self, loads: Loads) -> list[GraphName]:
        """The graphs to load on the way, in order: none where both stay on the device."""
        if not (loads.prefill_ms or loads.decode_ms):
            return []
        loaded: list[GraphName] = []
        current = loads.ready
        for stretch in (*self.stretches, None):  # answers end in decode
            graph: GraphName = "decode" if stretch is None or stretch.gear is None else "prefill"
            if graph != current:
                loaded.append(graph)
                current = graph
        return loaded


def plan(
    prompt: PromptLayout,
    prefill: PrefillAbility,
    costs: Costs,
    loads: Loads,
) -> Route:
    """The cheapest way to have the whole prompt in the state.

    Raises PromptGearError when picture tokens lie where no gear reaches them.
    """
    search = _RouteSearch(prompt, prefill, costs, loads)
    onward = search.cheapest(prompt.used)
    again = None
    if prompt.used and not prefill.stateful:
        again = search.cheapest(0)
    restart = again is not None and (onward is None or again.cost < onward.cost)
    best = again if restart else onward
    if best is None:
        raise _unreachable(prompt, prefill)
    return Route(best.stretches(), restart, best.cost)


@dataclass(frozen=True, slots=True)
class PrefillAbility:
    """What the two graphs can do: a `stateful` prefill goes on anywhere, any other starts at the
    first token; `decode_first` tells that a decode step can read the first token. An `exact`
    prefill must not be padded: padding would go into its states. Without `steps` there is no graph
    for decode."""

    gears: Sequence[Gear]
    stateful: bool
    decode_first: bool
    exact: bool = False
    steps: bool = True


class PromptGearError(CapacityError, ValueError):
    """A prompt that no sequence of gears can read."""


@dataclass(frozen=True, slots=True)
class _Best:
    """The cheapest way to a place: its last stretch, and the way before it."""

    cost: float
    stretch: Stretch | None = None
    before: _Best | None = None

    def stretches(self) -> tuple[Stretch, ...]:
        found: list[Stretch] = []
        here: _Best | None = self
        while here is not None and here.stretch is not None:
            found.append(here.stretch)
            here = here.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class _RouteSearch:
    """Dynamic programming over places and the graph that ran last; answers end in decode."""

    prompt: PromptLayout
    prefill: PrefillAbility
    costs: Costs
    loads: Loads

    def cheapest(self, start: int) -> _Best | None:
        table: dict[int, dict[GraphName | None, _Best]] = {start: {None: _Best(0.0)}}
        for place in range(start, self.prompt.total):
            for current, best in table.pop(place, {}).items():
                for graph, stretch in self._stretches(place):
                    cost = (
                        best.cost + self.loads.switch(current, graph) + self.costs.of(stretch.gear)
                    )
                    there = table.setdefault(stretch.end, {})
                    if graph not in there or cost < there[graph].cost:
                        there[graph] = _Best(cost, stretch, best)
        ways = table.get(self.prompt.total, {}).items()
        finals = [
            _Best(best.cost + self.loads.switch(current, "decode"), best.stretch, best.before)
            for current, best in ways
        ]
        return min(finals, key=lambda best: best.cost, default=None)

    def _stretches(self, place: int) -> Iterator[tuple[GraphName, Stretch]]:
        """What can run next."""
        if self.prefill.stateful or place == 0:
            for gear in self.prefill.gears:
                end = self.prompt.longest(place, gear)
                if end > place and (not self.prefill.exact or end - place == gear.tokens):
                    yield "prefill", Stretch(place, end, gear)
        first = self.prefill.decode_first
        if self.prefill.steps and not self.prompt.is_image(place) and (place > 0 or first):
            yield "decode", Stretch(place, place + 1, None)


def _prior(gear: Gear | None) -> float:
    if gear is None:
        return _STEP
    return _CALL + _TOKEN * gear.tokens + _IMAGE_ROW * gear.image_rows


def _unreachable(prompt: PromptLayout, prefill: PrefillAbility) -> PromptGearError:
    gears = sorted(prefill.gears)
    listed = ", ".join(f"{gear.tokens} ({gear.image_rows} of pictures)" for gear in gears)
    takes, remedy = "takes", Remedy.OTHER_GEARS
    if prefill.exact:
        takes, remedy = "takes no padding, only exactly", Remedy.ASK_MORE_OR_EXPORT
    return PromptGearError(
        f"prompt has {prompt.total} tokens, {prompt.image_ends[-1]} of pictures; the prefill graph "
        f"{takes} {listed}:",
        remedy,
    )
