"""Sixel graphics cut along cells: any run of cells can be drawn again by itself. Pure.

After the VT340's manual: bands of six rows, one pass for each colour. The pixels that a band has
beyond the cells stay unset, which leaves what lies there alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from q35chat.tui.images.gallery import Placed
from q35chat.tui.images.preview import Pixels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COLOURS: Final = 64
_BAND: Final = 6
_RUN: Final = re.compile(rb"(.)\1{3,254}", re.DOTALL)


class Canvas:
    """A picture stretched to its cells and cut down to 64 colours."""

    def __init__(self, placed: Placed, cell: tuple[int, int]) -> None:
        self._cell = cell
        size = (placed.columns * cell[0], placed.rows * cell[1])
        self._indices, self._palette = _indexed(placed.pixels, size)
        self._runs: dict[tuple[int, int, int], str] = {}

    def run(self, row: int, start: int, end: int) -> str:
        """The sequence for the cells from column `start` up to `end` of a row."""
        key = (row, start, end)
        if key not in self._runs:
            width, height = self._cell
            part = self._indices[row * height : (row + 1) * height, start * width : end * width]
            self._runs[key] = _encoded(part, self._palette)
        return self._runs[key]


def _indexed(pixels: Pixels, size: tuple[int, int]) -> tuple[NDArray[np.uint8], list[int]]:
    import numpy as np  # noqa: PLC0415 - the first paint must not wait for them
    from PIL import Image  # noqa: PLC0415

    image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb).resize(size)
    reduced = image.quantize(_COLOURS, dither=Image.Dither.NONE)
    return np.asarray(reduced, dtype=np.uint8), reduced.getpalette() or []


def _encoded(indices: NDArray[np.uint8], palette: list[int]) -> str:
    import numpy as np  # noqa: PLC0415

    height, width = indices.shape
    colours = np.unique(indices).tolist()
    registers = "".join(
        f"#{index};2;" + ";".join(str(round(level / 2.55)) for level in _levels(palette, index))
        for index in colours
    )
    bands = "-".join(_band(indices[top : top + _BAND]) for top in range(0, height, _BAND))
    return f'\x1bP0;1;0q"1;1;{width};{height}{registers}{bands}\x1b\\'


def _levels(palette: list[int], index: int) -> list[int]:
    return palette[index * 3 : index * 3 + 3]


def _band(rows: NDArray[np.uint8]) -> str:
    import numpy as np  # noqa: PLC0415

    weights = (1 << np.arange(len(rows), dtype=np.uint8))[:, None]
    passes = []
    for colour in np.unique(rows):
        bits = ((rows == colour) * weights).sum(axis=0).astype(np.uint8) + np.uint8(63)
        passes.append(f"#{colour}" + _RUN.sub(_shortened, bits.tobytes()).decode("ascii"))
    return "$".join(passes)


def _shortened(match: re.Match[bytes]) -> bytes:
    return b"!%d%b" % (len(match[0]), match[1])
