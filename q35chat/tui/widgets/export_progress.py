"""How an export goes: its phases, a bar for the one at work, bytes and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from textual.content import Content
from textual.widgets import Static

from q35chat.counting import readable_size
from q35chat.tui.exporting import Phase
from q35chat.tui.text import clean, seconds

FINISHING: Final = "finishing"
_DIM: Final = "$foreground 60%"
_NAME, _PERCENT = 12, 7
_LONGEST_BAR: Final = 40
_FULL, _EMPTY = "█", "░"
_RATE_FROM_S: Final = 1.0


class ExportProgress(Static):
    """Fed with phases as they change; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(markup=False, id="progress")
        self._clock = clock
        self._phases: dict[str, Phase] = {}
        self._since: dict[str, float] = {}

    def begin(self, expected: Sequence[tuple[str, int]]) -> None:
        """Start over; `expected` are the names and sizes of the phases to come."""
        self._phases = {name: Phase(name, 0, total) for name, total in expected}
        self._since = {}
        self.draw()

    def take(self, phase: Phase) -> None:
        """A phase went on, perhaps one that nobody expected. What came before it is over."""
        self._since.setdefault(phase.name, self._clock())
        for name, before in self._phases.items():
            if name == phase.name:
                break
            if name in self._since and not before.ended:
                self._phases[name] = Phase(name, before.total, before.total, ended=True)
        if phase.name not in self._phases:
            self._phases = self._begun() | {phase.name: phase} | self._phases
        self._phases[phase.name] = phase

    def draw(self) -> None:
        """Show how it stands now."""
        self.update(progress_content(tuple(self._phases.values()), self._now(), self.size.width))

    def on_resize(self) -> None:
        """The bar has another length."""
        self.draw()

    def _begun(self) -> dict[str, Phase]:
        return {name: phase for name, phase in self._phases.items() if name in self._since}

    def _now(self) -> tuple[str, float]:
        """The phase at work and how long it has been; empty before the first."""
        for name in reversed(self._phases):
            if name in self._since:
                return name, self._clock() - self._since[name]
        return "", 0.0


def progress_content(phases: Sequence[Phase], now: tuple[str, float], width: int) -> Content:
    """The phases, a line each, and what is known of the one that is at work for `now` seconds."""
    over = bool(phases) and all(phase.ended for phase in phases)
    lines = [_line(phase, phase.name == now[0], width) for phase in phases]
    lines.append(_waiting(FINISHING, at_work=over))
    working = next((phase for phase in phases if phase.name == now[0] and not phase.ended), None)
    lines += [Content(""), Content.styled(_facts(working, now[1], over), _DIM)]
    return Content("\n").join(lines)


def _line(phase: Phase, at_work: bool, width: int) -> Content:
    name = clean(phase.name).ljust(_NAME)
    if phase.ended:
        done = readable_size(phase.total) if phase.total else ""
        return Content.assemble(("✓ ", "$success"), name, (done, _DIM))
    if not at_work or not phase.total:
        return _waiting(phase.name, at_work)
    share = min(1.0, phase.done / phase.total)
    length = max(4, min(_LONGEST_BAR, width - 2 - _NAME - _PERCENT))
    full = round(share * length)
    return Content.assemble(
        ("▸ ", "$primary bold"),
        (name, "bold"),
        (_FULL * full, "$primary"),
        (_EMPTY * (length - full), "$foreground 30%"),
        (f"{share:.0%}".rjust(_PERCENT - 1), "bold"),
    )


def _waiting(name: str, at_work: bool) -> Content:
    if at_work:
        return Content.assemble(("▸ ", "$primary bold"), (clean(name), "bold"))
    return Content.styled(f"· {clean(name)}", _DIM)


def _facts(phase: Phase | None, spent: float, over: bool) -> str:
    if over:
        return "writing everything to the disk and putting it in its place"
    if phase is None:
        return "starting"
    parts = [readable_size(phase.done)] if phase.done else []
    if phase.total:
        parts = [f"{readable_size(phase.done)} of {readable_size(phase.total)}"]
    if phase.done and spent > _RATE_FROM_S:
        rate = phase.done / spent
        parts.append(f"{readable_size(rate)}/s")
        if phase.total:
            parts.append(f"{seconds(max(0.0, phase.total - phase.done) / rate)} left")
    return " · ".join(parts)
