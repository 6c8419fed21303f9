"""Where lines break: between words, and between Chinese, Japanese and Korean characters. Pure."""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len, get_character_cell_size

_WIDE: Final = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\uffe0-\uffe6"
)
_CLOSING: Final = "，。、；：！？）】》」』〉〕％…,.;:!?)\\]}"
_OPENING: Final = "（【《「『〈〔"
_CHUNK: Final = re.compile(
    rf"[{_OPENING}]*[{_WIDE}][{_CLOSING}]*\s*|(?:(?![{_WIDE}])\S)+[{_CLOSING}]*\s*|\s+"
)


def breaks(text: str, width: int) -> list[int]:
    """Offsets at which a single line of text is cut to fit `width` cells.

    A word longer than the width is cut where it must be.
    """
    offsets: list[int] = []
    used = 0
    for match in _CHUNK.finditer(text):
        chunk = match[0]
        size = cell_len(chunk.rstrip())
        if used and used + size > width:
            offsets.append(match.start())
            used = 0
        if size > width:
            used = _fold(chunk, match.start(), width, offsets)
        else:
            used += cell_len(chunk)
    return offsets


def _fold(chunk: str, start: int, width: int, offsets: list[int]) -> int:
    used = 0
    for index, character in enumerate(chunk):
        size = get_character_cell_size(character)
        if used and used + size > width and not character.isspace():
            offsets.append(start + index)
            used = 0
        used += size
    return used
