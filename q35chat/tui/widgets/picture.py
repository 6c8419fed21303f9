"""A small still picture in half blocks, decoded off the screen's thread."""

from __future__ import annotations

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from q35chat.tui.preview import Cells, Pixel, half_blocks


class Picture(Widget):
    """At most `columns` x `rows` cells; blank until decoded."""

    def __init__(self, data: bytes = b"", columns: int = 28, rows: int = 9) -> None:
        super().__init__()
        self._columns, self._rows = columns, rows
        self._cells: Cells = ()
        self._data = data

    def on_mount(self) -> None:
        """Decode what was given."""
        if self._data:
            self.show(self._data)

    def show(self, data: bytes) -> None:
        """Decode another picture; the newest asked for wins."""
        self._data = data
        self.run_worker(self._decode, thread=True, exclusive=True, group="decode")

    def blank(self) -> None:
        """Show nothing."""
        self._data = b""
        self._put((), b"")

    def _decode(self) -> None:
        data = self._data
        cells = half_blocks(data, self._columns, self._rows)
        self.call_later(self._put, cells, data)

    def _put(self, cells: Cells, data: bytes) -> None:
        if data == self._data and self.is_attached:
            self._cells = cells
            self.refresh(layout=True)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002
        """The decoded width in cells."""
        return len(self._cells[0]) if self._cells else 1

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The decoded height in cells."""
        return len(self._cells) or 1

    def render_line(self, y: int) -> Strip:
        """One row of half blocks."""
        if y >= len(self._cells):
            return Strip.blank(self.size.width)
        segments = [
            Segment("▀", Style(color=_colour(upper), bgcolor=_colour(lower)))
            for upper, lower in self._cells[y]
        ]
        return Strip(segments).adjust_cell_length(self.size.width)


def _colour(pixel: Pixel) -> Color:
    return Color.from_rgb(*pixel)
