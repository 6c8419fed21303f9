"""Cutting a growing Markdown text into pieces that are never touched again.

A widget re-parses its whole last block at every write, so one long block would make every
token dearer than the one before. Each piece here is bounded: a text is cut where Markdown
would start afresh, and a very long fence or list is cut inside, with the fence closed and
opened again. Pure functions; knows no widget.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from q35chat.tui.markdown.graphemes import before

SOFT_LIMIT: Final = 1_000
HARD_LIMIT: Final = 2_000
LINE_LIMIT: Final = 4_000

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_LIST_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_LOOK_AHEAD: Final = 12


@dataclass(frozen=True, slots=True)
class Cut:
    """A finished piece and the rest; `goes_on` when a code block or a list was cut."""

    done: str
    rest: str
    goes_on: bool = False


@dataclass(slots=True)
class _Scan:
    fence: str = ""
    fence_line: str = ""
    fence_start: int = 0
    fresh: int = 0
    item: int = 0


def cut(source: str) -> Cut | None:
    """The first part of `source` that is complete, once it is long enough; else None."""
    if len(source) < SOFT_LIMIT:
        return None
    scan = _scan(source)
    if scan.fresh:
        return Cut(source[: scan.fresh], source[scan.fresh :])
    if len(source) < HARD_LIMIT:
        return None
    if scan.fence:
        return _cut_fence(source, scan)
    if scan.item:
        return Cut(source[: scan.item], source[scan.item :], goes_on=True)
    return _cut_anywhere(source)


def pieces(source: str) -> list[tuple[str, bool]]:
    """A whole text as (piece, whether it was cut inside a block) pairs, in order."""
    result: list[tuple[str, bool]] = []
    while (found := cut(source)) is not None:
        result.append((found.done, found.goes_on))
        source = found.rest
    if source or not result:
        result.append((source, False))
    return result


def _scan(source: str) -> _Scan:
    """Where the text could be cut: `fresh` at a new block, `item` at a list item; 0 is nowhere.

    Looks no further than the first good place after the soft limit, or the hard limit.
    """
    scan = _Scan()
    offset, blank = 0, False
    for line in source.split("\n"):
        ends = offset + len(line) < len(source)
        if not scan.fence and offset:
            _note_places(scan, source, offset, line, after_blank=blank)
        _follow_fence(scan, line, offset)
        blank = not line.strip()
        if not ends or offset >= HARD_LIMIT or (offset >= SOFT_LIMIT and scan.fresh):
            break
        offset += len(line) + 1
    return scan


def _note_places(scan: _Scan, source: str, offset: int, line: str, *, after_blank: bool) -> None:
    is_item = bool(_LIST_ITEM.match(line))
    complete = offset + len(line) < len(source) or len(line) >= _LOOK_AHEAD
    if is_item:
        scan.item = offset
    elif after_blank and complete and line.strip() and not line[0].isspace():
        scan.fresh = offset


def _follow_fence(scan: _Scan, line: str, offset: int) -> None:
    fence = _FENCE.match(line)
    if scan.fence:
        if fence and fence[1].startswith(scan.fence) and not fence[2].strip():
            scan.fence = ""
    elif fence:
        scan.fence, scan.fence_line, scan.fence_start = fence[1], line + "\n", offset


def _cut_fence(source: str, scan: _Scan) -> Cut | None:
    if scan.fence_start >= SOFT_LIMIT:
        return Cut(source[: scan.fence_start], source[scan.fence_start :])
    begin = scan.fence_start + len(scan.fence_line)
    at = source.rfind("\n", begin, begin + HARD_LIMIT) + 1
    if not at:
        return None
    return Cut(f"{source[:at]}{scan.fence}\n", f"{scan.fence_line}{source[at:]}", goes_on=True)


def _cut_anywhere(source: str) -> Cut | None:
    if len(source) < LINE_LIMIT:
        return None
    at = source.rfind("\n", SOFT_LIMIT, LINE_LIMIT) + 1 or source.rfind(" ", 0, LINE_LIMIT) + 1
    at = at or before(source, LINE_LIMIT) or LINE_LIMIT
    return Cut(source[:at], source[at:])
