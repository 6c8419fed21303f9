"""The capacity bar: used, this turn and free, told apart by colour and by shape."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget

from q35chat.tui.meter import Capacity, Level

USED: Final = "█"
TURN: Final = "▒"
FREE: Final = "·"
COLOURS: Final[dict[Level, str]] = {"normal": "$primary", "warning": "$warning", "full": "$error"}
SIGNS: Final[dict[Level, str]] = {"normal": "", "warning": "▲ ", "full": "■ "}


def bar_cells(capacity: Capacity, width: int) -> tuple[int, int, int]:
    """Cells for used, this turn and free; what exists gets at least one cell."""
    if not capacity.total or width <= 0:
        return 0, 0, max(0, width)
    free = _share(capacity.free, capacity.total, width)
    turn = min(_share(capacity.turn, capacity.total, width), width - free)
    kept = width - free - turn
    if capacity.kept and not kept:
        kept = 1
        turn, free = (turn - 1, free) if turn > free else (turn, free - 1)
    elif not capacity.kept and kept:
        turn, kept = (turn + kept, 0) if capacity.turn else (turn, kept)
    return kept, turn, free


def bar_content(capacity: Capacity, width: int) -> Content:
    """The bar on one line."""
    kept, turn, free = bar_cells(capacity, width)
    return Content.assemble(
        (USED * kept, COLOURS[capacity.level]),
        (TURN * turn, "$accent"),
        (FREE * free, "$foreground 40%"),
    )


def _share(part: int, total: int, width: int) -> int:
    return max(1, round(width * part / total)) if part > 0 else 0


class CapacityBar(Widget):
    """The bar over its whole width, two lines tall."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._capacity = Capacity()

    def show(self, capacity: Capacity) -> None:
        """Draw another state, if it differs."""
        if capacity != self._capacity:
            self._capacity = capacity
            self.refresh()

    def render(self) -> Content:
        """Two equal lines."""
        line = bar_content(self._capacity, self.content_size.width)
        return Content("\n").join([line] * max(1, self.content_size.height))
