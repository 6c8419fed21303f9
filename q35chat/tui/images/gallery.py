"""Pictures on the screen as private-use characters, one for each cell.

The screen moves, clips and covers such cells as it does text; where text leaves for the
terminal, `painting` replaces them by what the terminal draws. Owns which character means which
cell of which picture; knows no protocol and no widget. Safe to use from several threads.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL import Image

FIRST: Final = 0x100000
LAST: Final = 0x10FFFD
CELLS: Final = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]+")
"""Characters that stand for cells of pictures. `clean` lets no other text hold any."""

_IDS: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A picture of `columns` x `rows` cells; `id` has 24 bits, `first` is its first character."""

    id: int
    columns: int
    rows: int
    first: int
    picture: Image.Image

    def line(self, row: int) -> str:
        """The characters of one row of cells."""
        start = self.first + row * self.columns
        return "".join(map(chr, range(start, start + self.columns)))

    @property
    def end(self) -> int:
        """The character after its last."""
        return self.first + self.rows * self.columns


class Gallery:
    """The pictures that are on the screen or about to be."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._placed: list[Placed] = []
        self._removed: list[Placed] = []
        self._next_id = secrets.randbelow(_IDS)

    def add(self, picture: Image.Image, columns: int, rows: int) -> Placed | None:
        """Give a picture its characters; None when there are none left."""
        size = columns * rows
        with self._lock:
            index, first = self._room(size)
            if first + size - 1 > LAST:
                return None
            self._next_id = self._next_id % (_IDS - 1) + 1
            added = Placed(self._next_id, columns, rows, first, picture)
            self._placed.insert(index, added)
            return added

    def _room(self, size: int) -> tuple[int, int]:
        """Where in the list, and at which character, there is room."""
        first = FIRST
        for index, placed in enumerate(self._placed):
            if placed.first - first >= size:
                return index, first
            first = placed.end
        return len(self._placed), first

    def remove(self, placed: Placed) -> None:
        """Take a picture's characters back."""
        with self._lock:
            if placed in self._placed:
                self._placed.remove(placed)
                self._removed.append(placed)

    @property
    def has_removed(self) -> bool:
        """Whether `removed` would give any."""
        return bool(self._removed)

    def removed(self) -> list[Placed]:
        """The pictures taken away since this was last asked."""
        with self._lock:
            removed, self._removed = self._removed, []
            return removed

    def find(self, character: str) -> tuple[Placed, int, int] | None:
        """The picture, row and column of a character; None when it stands for nothing."""
        code = ord(character)
        with self._lock:
            index = bisect_right(self._placed, code, key=lambda placed: placed.first) - 1
            placed = self._placed[index] if index >= 0 else None
        if placed is None or code >= placed.end:
            return None
        return placed, *divmod(code - placed.first, placed.columns)
