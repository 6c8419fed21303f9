"""A small still picture, decoded off the screen's thread, drawn as well as the terminal can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from q35chat.tui.application import application
from q35chat.tui.images.gallery import Placed
from q35chat.tui.images.graphics import PictureDisplay
from q35chat.tui.images.thumbnail import Cells, Pixel, coarse, grid, half_blocks
from q35chat.tui.terminal import HARMLESS

if TYPE_CHECKING:
    from PIL import Image


class Picture(Widget):
    """At most `columns` x `rows` cells; blank until decoded."""

    ALLOW_SELECT = False

    def __init__(self, data: bytes = b"", columns: int = 28, rows: int = 9) -> None:
        super().__init__()
        self._columns, self._rows = columns, rows
        self._cells: Cells = ()
        self._placed: Placed | None = None
        self._data = data

    @property
    def _screen_display(self) -> PictureDisplay:
        return application(self).picture_display

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The characters that stand for its cells are its own."""
        return [line for line in super().get_line_filters() if line is not HARMLESS]

    def on_mount(self) -> None:
        """Decode what was given."""
        self.redraw()

    def on_unmount(self) -> None:
        """Take the picture off the terminal."""
        self._take_back()

    def show(self, data: bytes) -> None:
        """Decode another picture; the newest asked for wins."""
        self._data = data
        self.redraw()

    def blank(self) -> None:
        """Show nothing."""
        self.show(b"")

    def limit(self, columns: int, rows: int) -> None:
        """Take at most so many cells from now on."""
        if (columns, rows) != (self._columns, self._rows):
            self._columns, self._rows = columns, rows
            self.redraw()

    def redraw(self) -> None:
        """Draw the same picture in the way that holds now."""
        self.display = self._screen_display.protocol != "none"
        if self._data and self.display:
            self.run_worker(self._decode, thread=True, exclusive=True, group="decode")
        else:
            self._put((), None, self._data)

    def _decode(self) -> None:
        data, display = self._data, self._screen_display
        if display.protocol == "blocks":
            cells = half_blocks(data, self._columns, self._rows)
            self.call_later(self._put, cells, None, data)
        else:
            from q35chat.chat.prompt.pictures import thumbnail  # noqa: PLC0415 - as in `half_blocks`

            width, height = display.cell
            small = thumbnail(data, self._columns * width, self._rows * height)
            self.call_later(self._put, (), small, data)

    def _put(self, cells: Cells, small: Image.Image | None, data: bytes) -> None:
        if data != self._data or not self.is_attached:
            return
        self._take_back()
        self._cells = cells
        if small is not None:
            display = self._screen_display
            size = grid(small, self._columns, self._rows, display.cell)
            self._placed = display.gallery.add(small, *size)
            self._cells = coarse(small, *size) if self._placed is None else ()
        self.refresh(layout=True)

    def _take_back(self) -> None:
        if self._placed is not None:
            self._screen_display.gallery.remove(self._placed)
            self._placed = None

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002
        """The decoded width in cells."""
        if self._placed is not None:
            return self._placed.columns
        return len(self._cells[0]) if self._cells else 1

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The decoded height in cells."""
        return self._placed.rows if self._placed is not None else len(self._cells) or 1

    def render_line(self, y: int) -> Strip:
        """One row of cells."""
        if self._placed is not None and y < self._placed.rows:
            row = [Segment(self._placed.line(y), self.rich_style)]
        elif y < len(self._cells):
            row = [
                Segment("▀", Style(color=_colour(upper), bgcolor=_colour(lower)))
                for upper, lower in self._cells[y]
            ]
        else:
            return Strip.blank(self.size.width)
        return Strip(row).adjust_cell_length(self.size.width)


def _colour(pixel: Pixel) -> Color:
    return Color.from_rgb(*pixel)
