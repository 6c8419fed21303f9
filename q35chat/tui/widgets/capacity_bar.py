"""The capacity bar: used, this turn and free, told apart by colour and by shape."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget

from q35chat.tui.chat.meter import Capacity, Level

USED: Final = "█"
TURN: Final = "▒"
FREE: Final = "·"
COLOURS: Final[dict[Level, str]] = {"normal": "$primary", "warning": "$warning", "full": "$error"}
SIGNS: Final[dict[Level, str]] = {"normal": "", "warning": "▲ ", "full": "■ "}


def bar_cells(capacity: Capacity, width: int) -> tuple[int, int, int]:
    """Cells for used, this turn and free; what exists gets a cell where there is room for it."""
    if not capacity.total or width <= 0:
        return 0, 0, max(0, width)
    parts = (capacity.kept, capacity.turn, capacity.free)
    whole = max(1, sum(parts))
    cells = [max(1, round(width * part / whole)) if part else 0 for part in parts]
    while sum(cells) != width:
        largest = cells.index(max(cells))
        cells[largest] += 1 if sum(cells) < width else -1
    return cells[0], cells[1], cells[2]


def bar_content(capacity: Capacity, width: int) -> Content:
    """The bar on one line."""
    kept, turn, free = bar_cells(capacity, width)
    return Content.assemble(
        (USED * kept, COLOURS[capacity.level]),
        (TURN * turn, "$accent"),
        (FREE * free, "$foreground 40%"),
    )


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
