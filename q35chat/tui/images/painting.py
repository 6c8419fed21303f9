"""Picture cells as what the terminal draws: the last step before it.

`PictureFile` stands for the file that the screen is written to. A cell whose picture has gone
becomes a space, so no stray character is ever shown.

Kitty's graphics protocol with Unicode placeholders, after
https://sw.kovidgoyal.net/kitty/graphics-protocol/: the picture is sent once, given a virtual
placement, and drawn wherever placeholder characters in the colour of its id stand. All answers are
suppressed (`q=2`), so nothing comes back as key presses.

Sixel graphics, after the VT340's manual: bands of six rows, one pass for each colour, cut along
cells so that any run of them can be drawn again by itself. The pixels that a band has beyond the
cells stay unset, which leaves what lies there alone.
"""

from __future__ import annotations

import base64
import re
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TextIO

from q35chat.tui.images.gallery import CELLS, Gallery, Placed
from q35chat.tui.images.graphics import PictureDisplay, cell_pixels
from q35chat.tui.text import through_tmux

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

_LEAVING: Final = "\x1b[?1049l"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_PLACEHOLDER: Final = "\U0010eeee"
_CHUNK: Final = 4096
_NUMBERS: Final = "".join(
    chr(code)
    for code in (
        0x0305, 0x030D, 0x030E, 0x0310, 0x0312, 0x033D, 0x033E, 0x033F, 0x0346, 0x034A, 0x034B,
        0x034C, 0x0350, 0x0351, 0x0352, 0x0357, 0x035B, *range(0x0363, 0x0370),
        *range(0x0483, 0x0488), *range(0x0592, 0x0596), *range(0x0597, 0x059A),
        *range(0x059C, 0x05A2), 0x05A8, 0x05A9, 0x05AB, 0x05AC, 0x05AF, 0x05C4,
        *range(0x0610, 0x0618),
    )
)  # fmt: skip
"""The combining marks that number rows and columns, from 0 to 61; no preview is larger."""
_COLOURS: Final = 64
_BAND: Final = 6
_RUN: Final = re.compile(rb"(.)\1{3,254}", re.DOTALL)


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
        match self._display.protocol:
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


class Kitty:
    """Sends a picture before it is first drawn; takes it back when it is gone."""

    def __init__(self, *, tmux: bool) -> None:
        self._tmux = tmux
        self._sent: dict[int, Placed] = {}

    def draw(self, placed: Placed, row: int, start: int, end: int) -> str:
        """A run of cells, after the picture itself where the terminal does not have it."""
        sequences = [] if placed.id in self._sent else _kitty_sent(placed)
        self._sent[placed.id] = placed
        return self._through(sequences) + _kitty_drawn(placed, row, start, end)

    def forget(self, removed: list[Placed] | None = None) -> str:
        """Take back these pictures, or all."""
        gone = list(self._sent.values()) if removed is None else removed
        known = [placed for placed in gone if self._sent.pop(placed.id, None) is not None]
        return self._through([_kitty_deleted(placed) for placed in known])

    def _through(self, sequences: list[str]) -> str:
        return "".join(map(through_tmux, sequences) if self._tmux else sequences)


def _kitty_sent(placed: Placed) -> list[str]:
    """The sequences that give the terminal a picture and its place in cells."""
    payload = base64.standard_b64encode(_png(placed)).decode("ascii")
    pieces = [payload[at : at + _CHUNK] for at in range(0, len(payload), _CHUNK)]
    sequences = [
        _command(f"q=2,m={int(number < len(pieces))}", piece)
        for number, piece in enumerate(pieces[1:], 2)
    ]
    start = f"a=t,f=100,t=d,i={placed.id},q=2,m={int(len(pieces) > 1)}"
    place = f"a=p,U=1,i={placed.id},c={placed.columns},r={placed.rows},q=2"
    return [_command(start, pieces[0]), *sequences, _command(place)]


def _kitty_drawn(placed: Placed, row: int, start: int, end: int) -> str:
    """The placeholders for the cells from column `start` up to `end` of a row."""
    red, green, blue = placed.id >> 16, placed.id >> 8 & 0xFF, placed.id & 0xFF
    cells = (_PLACEHOLDER + _NUMBERS[row] + _NUMBERS[column] for column in range(start, end))
    return f"\x1b[38;2;{red};{green};{blue}m{''.join(cells)}\x1b[39m"


def _kitty_deleted(placed: Placed) -> str:
    """The sequence that takes a picture off the screen and frees its memory."""
    return _command(f"a=d,d=I,i={placed.id},q=2")


def _command(keys: str, payload: str = "") -> str:
    return f"\x1b_G{keys}{';' if payload else ''}{payload}\x1b\\"


def _png(placed: Placed) -> bytes:
    file = BytesIO()
    placed.picture.save(file, "PNG")
    return file.getvalue()


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


class Canvas:
    """A picture stretched to its cells and cut down to 64 colours."""

    def __init__(self, placed: Placed, cell: tuple[int, int]) -> None:
        self._cell = cell
        size = (placed.columns * cell[0], placed.rows * cell[1])
        self._indices, self._palette = _indexed(placed.picture, size)
        self._runs: dict[tuple[int, int, int], str] = {}

    def run(self, row: int, start: int, end: int) -> str:
        """The sequence for the cells from column `start` up to `end` of a row."""
        key = (row, start, end)
        if key not in self._runs:
            width, height = self._cell
            part = self._indices[row * height : (row + 1) * height, start * width : end * width]
            self._runs[key] = _encoded(part, self._palette)
        return self._runs[key]


def _indexed(picture: Image.Image, size: tuple[int, int]) -> tuple[NDArray[np.uint8], list[int]]:
    import numpy as np  # noqa: PLC0415 - the first paint must not wait for them
    from PIL import Image  # noqa: PLC0415

    reduced = picture.resize(size).quantize(_COLOURS, dither=Image.Dither.NONE)
    return np.asarray(reduced, dtype=np.uint8), reduced.getpalette() or []


def _encoded(indices: NDArray[np.uint8], palette: list[int]) -> str:
    import numpy as np  # noqa: PLC0415

    height, width = indices.shape
    colours = np.unique(indices).tolist()
    levels = ([round(it / 2.55) for it in palette[index * 3 : index * 3 + 3]] for index in colours)
    registers = "".join(
        f"#{index};2;{red};{green};{blue}"
        for index, (red, green, blue) in zip(colours, levels, strict=True)
    )
    bands = "-".join(_band(indices[top : top + _BAND]) for top in range(0, height, _BAND))
    return f'\x1bP0;1;0q"1;1;{width};{height}{registers}{bands}\x1b\\'


def _band(rows: NDArray[np.uint8]) -> str:
    import numpy as np  # noqa: PLC0415

    weights = (1 << np.arange(len(rows), dtype=np.uint8))[:, None]
    passes = []
    for colour in np.unique(rows):
        bits = ((rows == colour) * weights).sum(axis=0).astype(np.uint8) + np.uint8(63)
        row = _RUN.sub(lambda it: b"!%d%b" % (len(it[0]), it[1]), bits.tobytes())
        passes.append(f"#{colour}{row.decode('ascii')}")
    return "$".join(passes)
