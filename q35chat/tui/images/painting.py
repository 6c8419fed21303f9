"""The last step before the terminal: cells of pictures become what it draws.

`PictureFile` stands for the file that the screen is written to. A cell whose picture has gone
becomes a space, so no stray character is ever shown.
"""

from __future__ import annotations

import re
from typing import Any, Final, TextIO

from q35chat.tui.images import kitty
from q35chat.tui.images.gallery import CELLS, Gallery, Placed
from q35chat.tui.images.graphics import PictureDisplay, cell_pixels
from q35chat.tui.images.sixel import Canvas

_LEAVING: Final = "\x1b[?1049l"
_SAVE, _RESTORE = "\x1b7", "\x1b8"


class Kitty:
    """Sends a picture before it is first drawn; takes it back when it is gone."""

    def __init__(self, *, tmux: bool) -> None:
        self._tmux = tmux
        self._sent: dict[int, Placed] = {}

    def draw(self, placed: Placed, row: int, start: int, end: int) -> str:
        """A run of cells, after the picture itself where the terminal does not have it."""
        sequences = [] if placed.id in self._sent else kitty.sent(placed)
        self._sent[placed.id] = placed
        return self._through(sequences) + kitty.drawn(placed, row, start, end)

    def forget(self, removed: list[Placed] | None = None) -> str:
        """Take back these pictures, or all."""
        gone = list(self._sent.values()) if removed is None else removed
        known = [placed for placed in gone if self._sent.pop(placed.id, None) is not None]
        return self._through([kitty.deleted(placed) for placed in known])

    def _through(self, sequences: list[str]) -> str:
        return "".join(map(kitty.through_tmux, sequences) if self._tmux else sequences)


class Sixel:
    """Draws over blanks, so that nothing older shows, and moves on as text would."""

    def __init__(self, cell: tuple[int, int]) -> None:
        self._cell = cell
        self._canvases: dict[int, Canvas] = {}

    def draw(self, placed: Placed, row: int, start: int, end: int) -> str:
        """A run of cells."""
        now = cell_pixels() or self._cell
        if now != self._cell:
            self._cell, self._canvases = now, {}
        if placed.id not in self._canvases:
            self._canvases[placed.id] = Canvas(placed, self._cell)
        image = self._canvases[placed.id].run(row, start, end)
        blanks = " " * (end - start)
        return f"{_SAVE}{blanks}{_RESTORE}{image}{_RESTORE}\x1b[{end - start}C"

    def forget(self, removed: list[Placed] | None = None) -> str:
        """Forget these pictures, or all; what is drawn over them takes them off the screen."""
        if removed is None:
            self._canvases.clear()
        for placed in removed or ():
            self._canvases.pop(placed.id, None)
        return ""


class PictureFile:
    """Writes to `file`, with pictures drawn in the way that `display` says."""

    def __init__(self, file: TextIO, display: PictureDisplay) -> None:
        self._file = file
        self._display = display
        self._gallery: Gallery = display.gallery
        self._kitty = Kitty(tmux=display.terminal.in_tmux)
        self._sixel = Sixel(display.cell)

    def write(self, text: str) -> int:
        """Write text that Textual has composed."""
        if self._gallery.has_removed:
            removed = self._gallery.removed()
            self._file.write(self._kitty.forget(removed) + self._sixel.forget(removed))
        if _LEAVING in text:
            # The pictures belong to the screen that is being left.
            self._file.write(self._kitty.forget() + self._sixel.forget())
        return self._file.write(CELLS.sub(self._runs, text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest is the file's own
        return getattr(self._file, name)

    def _runs(self, match: re.Match[str]) -> str:
        text, at, drawn = match[0], 0, list[str]()
        while at < len(text):
            found = self._gallery.find(text[at])
            length = _consecutive(text, at, found[0].columns - found[2]) if found else 1
            drawn.append(self._run(found, length))
            at += length
        return "".join(drawn)

    def _run(self, found: tuple[Placed, int, int] | None, length: int) -> str:
        if found is None:
            return " " * length
        placed, row, column = found
        match self._display.way:
            case "kitty":
                return self._kitty.draw(placed, row, column, column + length)
            case "sixel":
                return self._sixel.draw(placed, row, column, column + length)
            case _:
                return " " * length


def _consecutive(text: str, at: int, most: int) -> int:
    length = 1
    while (
        length < most
        and at + length < len(text)
        and ord(text[at + length]) == ord(text[at]) + length
    ):
        length += 1
    return length
