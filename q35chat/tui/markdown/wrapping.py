"""Where lines break: between words, and between Chinese, Japanese and Korean characters. Pure.

Never inside what people see as one character. Widths are in cells, as the screen counts them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from rich.cells import cell_len, set_cell_size

from q35chat.tui.markdown.graphemes import clusters, ends

_WIDE: Final = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_CLOSING: Final = "，。、；：！？）】》」』〉〕％…,.;:!?)\\]}"
_OPENING: Final = "（【《「『〈〔"
_PIECE: Final = 2_000
_UNSURE: Final = 3
_ASCII_CHUNK: Final = re.compile(r"\S+\s*|\s+")


def breaks(text: str, width: int, *, hanging: bool = True) -> list[int]:
    """Offsets at which a single line of text is cut to fit `width` cells.

    A word longer than the width is cut where it must be. Spaces at the end of a line may hang
    over its edge, unless `hanging` is false.
    """
    offsets: list[int] = []
    used = 0
    for start, chunk in _chunks(text):
        size = cell_len(chunk.rstrip() if hanging else chunk)
        if used and used + size > width:
            offsets.append(start)
            used = 0
        if size > width:
            used = _fold(chunk, start, width, offsets, hanging=hanging)
        else:
            used += cell_len(chunk)
    return offsets


def breaks_after_edit(
    text: str, width: int, known: Sequence[int], start: int, old_end: int, new_end: int
) -> list[int]:
    """What `breaks(text, width, hanging=False)` gives, where `known` was that of the text in which
    `start` to `old_end` stood for what is now `start` to `new_end`: only lines around the edit are
    looked at, and those behind it until one begins where one began before.

    A line depends on nothing before its start, unless that is a closing sign of a wide character,
    and no break depends on what follows behind two more.
    """
    found = _sure(text, list(known[: bisect_right(known, start)]))
    shift = new_end - old_end
    while True:
        at = found[-1] if found else 0
        new, whole = _some_breaks(text, at, width)
        for offset in new:
            place = bisect_left(known, offset - shift)
            same = known[place : place + 1] == [offset - shift]
            if offset >= new_end and same and _begins(text, offset):
                return found + [offset + shift for offset in known[place:]]
            found.append(offset)
        if whole:
            return found


def _some_breaks(text: str, start: int, width: int) -> tuple[list[int], bool]:
    """Breaks after the one at `start`, and whether they are all that follow."""
    size = _PIECE
    while True:
        piece = text[start : start + size]
        offsets = [start + offset for offset in breaks(piece, width, hanging=False)]
        if start + size >= len(text):
            return offsets, True
        if sure := _sure(text, offsets):
            return sure, False
        size *= 2


def _sure(text: str, offsets: list[int]) -> list[int]:
    """Shortened to those that stay whatever follows, and to the last where a line begins for
    itself."""
    del offsets[-_UNSURE:]
    while offsets and not _begins(text, offsets[-1]):
        offsets.pop()
    return offsets


def _begins(text: str, offset: int) -> bool:
    return text.isascii() or text[offset] not in _CLOSING


def folds(text: str, width: int) -> list[int]:
    """Offsets at which a single line is cut wherever it is full, words or not."""
    offsets: list[int] = []
    _fold(text, 0, width, offsets, hanging=False)
    return offsets


def fitting(text: str, width: int) -> str:
    """As much of the beginning as fits `width` cells."""
    used = 0
    for end, cluster in zip(ends(text), clusters(text), strict=True):
        used += cell_len(cluster)
        if used > width:
            return text[: end - len(cluster)]
    return text


def padded(text: str, width: int) -> str:
    """The text with spaces after it up to `width` cells; never cut."""
    return set_cell_size(text, max(width, cell_len(text)))


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """Words with the spaces after them, and wide characters, as (offset, text)."""
    if text.isascii():
        yield from ((match.start(), match[0]) for match in _ASCII_CHUNK.finditer(text))
        return
    whole = {0, *ends(text)}
    at, chunk = 0, ""
    for match in _chunk().finditer(text):
        if chunk and match.start() in whole:
            yield at, chunk
            chunk = ""
        at, chunk = (match.start() if not chunk else at), chunk + match[0]
    if chunk:
        yield at, chunk


@cache
def _chunk() -> re.Pattern[str]:
    """Slow to compile; the first paint must not wait for it."""
    return re.compile(
        rf"[{_OPENING}]*[{_WIDE}][{_CLOSING}]*\s*|(?:(?![{_WIDE}])\S)+[{_CLOSING}]*\s*|\s+"
    )


def _fold(chunk: str, start: int, width: int, offsets: list[int], *, hanging: bool) -> int:
    if chunk.isascii() and chunk.isprintable() and width > 0 and not (hanging and " " in chunk):
        offsets += range(start + width, start + len(chunk), width)
        return (len(chunk) - 1) % width + 1
    used = 0
    for cluster in clusters(chunk):
        size = cell_len(cluster)
        if used and used + size > width and not (hanging and cluster.isspace()):
            offsets.append(start)
            used = 0
        used += size
        start += len(cluster)
    return used
