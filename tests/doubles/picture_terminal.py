"""A terminal that draws pictures, and text as far as pictures stand among it.

It checks each sequence for pictures as strictly as a real terminal has to, and passes over those
that only steer colours, modes and the keyboard.
"""

from __future__ import annotations

import base64
import re
from io import BytesIO

from PIL import Image
from rich.cells import cell_len

Place = tuple[int, int]
PLACEHOLDER = "\U0010eeee"
MARKS = (
    "\u0305\u030d\u030e\u0310\u0312\u033d\u033e\u033f\u0346\u034a\u034b\u034c\u0350\u0351\u0352"
    "\u0357\u035b\u0363\u0364\u0365\u0366\u0367\u0368\u0369\u036a\u036b\u036c\u036d\u036e\u036f"
)
_SIXEL = re.compile(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)([?-~])|([?-~])|([$-])")
_TOKEN = re.compile(
    r"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\|\x1bP([\d;]*)q([^\x1b]*)\x1b\\"
    r"|\x1b\[([\x30-\x3f]*)[\x20-\x2f]*([\x40-\x7e])|\x1b\][^\x1b\x07]*(?:\x1b\\|\x07)"
    rf"|\x1b([78])|{PLACEHOLDER}(.)(.)|([^\x1b])",
    re.DOTALL,
)


class PictureTerminal:
    """`cells` holds characters, or (picture id, row, column); `painted` holds sixel pixels."""

    def __init__(self, cell: tuple[int, int] = (4, 8)) -> None:
        self.cell = cell
        self.cells: dict[Place, object] = {}
        self.painted: dict[Place, tuple[int, int, int]] = {}
        self.images: dict[int, Image.Image] = {}
        self.sizes: dict[int, tuple[int, int]] = {}
        self._x = self._y = 0
        self._saved = (0, 0)
        self._colour: tuple[int, ...] = ()
        self._payload: list[str] = []
        self._keys: dict[str, str] = {}

    def feed(self, text: str) -> None:
        """Obey what a program wrote."""
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token is not None, f"not understood: {text[at : at + 40]!r}"
            at = token.end()
            self._obey(token)

    def row(self, y: int) -> str:
        """The characters of a row; cells of pictures are shown as `#`."""
        last = max((x for x, line in self.cells if line == y), default=-1)
        found = [self.cells.get((x, y), " ") for x in range(last + 1)]
        return "".join(cell if isinstance(cell, str) else "#" for cell in found)

    def _obey(self, token: re.Match[str]) -> None:
        keys, payload, macro, sixel, numbers, final, cursor, row, column, character = token.groups()
        if keys is not None:
            self._kitty(dict(pair.split("=") for pair in keys.split(",")), payload)
        elif sixel is not None:
            assert macro == "0;1;0"
            self._sixel(sixel)
        elif final:
            self._csi(numbers, final)
        elif cursor == "7":
            self._saved = (self._x, self._y)
        elif cursor == "8":
            self._x, self._y = self._saved
        elif row:
            red, green, blue = self._colour
            cell = (red << 16 | green << 8 | blue, MARKS.index(row), MARKS.index(column))
            self._put(cell)
        elif character:
            self._put(character)

    def _put(self, cell: object) -> None:
        size = cell_len(cell) if isinstance(cell, str) else 1
        if not size or cell == "\n":
            return
        self.cells[self._x, self._y] = cell
        width, height = self.cell
        for x in range(self._x * width, (self._x + 1) * width):
            for y in range(self._y * height, (self._y + 1) * height):
                self.painted.pop((x, y), None)
        self._x += size

    def _csi(self, numbers: str, final: str) -> None:
        if final == "H" and numbers:
            self._y, self._x = (int(number) - 1 for number in numbers.split(";"))
        elif final == "C":
            self._x += int(numbers)
        elif final == "m":
            if numbers.startswith("38;2;"):
                self._colour = tuple(map(int, numbers.split(";")[2:]))
            elif numbers in {"0", "39", ""}:
                self._colour = ()

    def _kitty(self, keys: dict[str, str], payload: str) -> None:
        assert keys["q"] == "2", "an answer would arrive as key presses"
        assert len(payload) <= 4096
        if self._payload:
            assert keys.keys() == {"q", "m"}
        else:
            self._keys = keys
        if self._keys["a"] == "t":
            self._payload.append(payload)
            assert keys["m"] == "0" or len(payload) % 4 == 0
            if keys["m"] == "0":
                self._arrived()
        elif keys["a"] == "p":
            assert keys["U"] == "1"
            assert int(keys["i"]) in self.images
            self.sizes[int(keys["i"])] = (int(keys["c"]), int(keys["r"]))
        else:
            assert (keys["a"], keys["d"]) == ("d", "I")
            del self.images[int(keys["i"])]

    def _arrived(self) -> None:
        assert (self._keys["f"], self._keys["t"]) == ("100", "d")
        data = base64.b64decode("".join(self._payload), validate=True)
        self._payload = []
        self.images[int(self._keys["i"])] = Image.open(BytesIO(data)).convert("RGB")

    def _sixel(self, data: str) -> None:
        raster = re.match(r'"1;1;(\d+);(\d+)', data)
        assert raster is not None
        width, height = int(raster[1]), int(raster[2])
        left, top = self._x * self.cell[0], self._y * self.cell[1]
        colours: dict[int, tuple[int, int, int]] = {}
        now, x, band = 0, 0, 0
        at = raster.end()
        while at < len(data):
            part = _SIXEL.match(data, at)
            assert part is not None, f"no sixel: {data[at : at + 20]!r}"
            at = part.end()
            register, red, green, blue, count, repeated, single, motion = part.groups()
            if red is not None:
                colours[int(register)] = (int(red), int(green), int(blue))
            elif register is not None:
                now = int(register)
                assert now in colours
            elif motion is not None:
                x, band = 0, band + (motion == "-")
            else:
                bits = ord(repeated or single) - 63
                end = x + int(count or 1)
                lines = [band * 6 + bit for bit in range(6) if bits >> bit & 1]
                assert end <= width
                assert max(lines, default=0) < height
                for place in ((column, line) for column in range(x, end) for line in lines):
                    self.painted[left + place[0], top + place[1]] = colours[now]
                x = end
        self._y += 2  # where the cursor is left differs between terminals: nothing may rely on it
