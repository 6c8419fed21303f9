"""Characters as people see them: a letter with its marks, a flag, a family are one each.

Follows the rules for extended grapheme clusters of Unicode's annex 29, with one liberty: what
follows a zero width joiner always belongs to it, because that is how cells are counted. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final
from unicodedata import category

_KEPT_LENGTH: Final = 1_000
_JOINER: Final = "\u200d"
_MARKS: Final = frozenset({"Mn", "Me", "Mc"})
_ALSO_MARKS: Final = frozenset("\u200c\u200d\u200e\u200f\u061c\u2060\ufeff\u0e33\u0eb3\uff9e\uff9f")
_SKIN: Final = range(0x1F3FB, 0x1F400)
_TAGS: Final = range(0xE0020, 0xE0080)
_FLAGS: Final = range(0x1F1E6, 0x1F200)
_LEADING_JAMO: Final = range(0x1100, 0x1160)
_INNER_JAMO: Final = range(0x1160, 0x1200)
_SYLLABLES: Final = range(0xAC00, 0xD7A4)


def ends(text: str) -> tuple[int, ...]:
    """Where each character of a single line ends; the last is the length of the text."""
    return _kept_ends(text) if len(text) <= _KEPT_LENGTH else _ends(text)


@lru_cache(maxsize=512)
def _kept_ends(text: str) -> tuple[int, ...]:
    return _ends(text)


def _ends(text: str) -> tuple[int, ...]:
    if text.isascii():
        return tuple(range(1, len(text) + 1))
    found: list[int] = []
    at = 0
    while at < len(text):
        at = _end(text, at)
        found.append(at)
    return tuple(found)


def clusters(text: str) -> list[str]:
    """The text in characters; they join to the whole."""
    marks = ends(text)
    return [text[start:end] for start, end in pairwise((0, *marks))]


def before(text: str, index: int) -> int:
    """The last boundary before `index`; 0 at the start."""
    if index > len(text):
        return len(text)
    at = _start(text, index - 1)
    while at < index and (end := _end(text, at)) < index:
        at = end
    return at


def after(text: str, index: int) -> int:
    """The first boundary after `index`; the length of the text at its end."""
    if index >= len(text):
        return len(text)
    at = _end(text, _start(text, index))
    while at <= index:
        at = _end(text, at)
    return at


def forward(text: str, index: int) -> int:
    """`index` where it is a boundary, else the next one."""
    return after(text, index - 1) if index > 0 else 0


def _start(text: str, index: int) -> int:
    """The last place up to `index` where a character begins whatever stands before."""
    while index > 0 and (ord(text[index]) in _FLAGS or _continues(text[index - 1], text[index], 0)):
        index -= 1
    return max(index, 0)


def _end(text: str, start: int) -> int:
    """Where the character that begins at `start` ends."""
    flags = 0
    for index in range(start, len(text)):
        if index > start and not _continues(text[index - 1], text[index], flags):
            return index
        flags += ord(text[index]) in _FLAGS
    return len(text)


def _continues(previous: str, character: str, flags: int) -> bool:
    """Whether a character belongs to the one before; `flags` counts letters of flags so far."""
    if previous in "\t\n":
        return False
    code, last = ord(character), ord(previous)
    if previous == _JOINER or category(character) in _MARKS or character in _ALSO_MARKS:
        return True
    if code in _SKIN or code in _TAGS:
        return True
    if code in _FLAGS:
        return last in _FLAGS and flags % 2 == 1
    if last in _LEADING_JAMO:
        return code in _LEADING_JAMO or code in _INNER_JAMO or code in _SYLLABLES
    return code in _INNER_JAMO and (last in _INNER_JAMO or last in _SYLLABLES)
