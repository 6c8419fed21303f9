"""Editing text of any script: where lines wrap, where the cursor may stand, how far a key moves.

Textual's editor counts code points; here a letter with its marks or an emoji of several parts is
one step, one click and one cursor. Knows Textual's document classes and no widget.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Final
from unicodedata import category

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.document._document import Location
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.expand_tabs import expand_tabs_inline, get_tab_widths
from textual.geometry import Offset

from q35chat.tui.markdown.graphemes import after, before, clusters, forward
from q35chat.tui.markdown.wrapping import breaks, breaks_after_edit
from q35chat.tui.text import clean

_SEPARATORS: Final = frozenset({"Zl", "Zp"})


class WrappedScript(WrappedDocument):
    """Wraps as the conversation does. An edit within a line wraps only what it moves; one that
    makes or takes lines wraps the whole again."""

    def wrap(self, width: int, tab_width: int | None = None) -> None:
        """Wrap all lines to `width` cells; 0 is no wrapping."""
        self._width = width
        self._tab_width = tab_width or self._tab_width
        lines = self.document.lines
        self._tab_width_cache = [
            [size for _, size in get_tab_widths(line, self._tab_width)] if "\t" in line else []
            for line in lines
        ]
        self._wrap_offsets = [
            _editor_breaks(line, width, self._tab_width) if width else [] for line in lines
        ]
        self._lengths = [*map(len, lines)]
        self._number_rows()

    def wrap_range(self, start: Location, old_end: Location, new_end: Location) -> None:
        """Wrap after an edit."""
        row, line = start[0], self.document.get_line(start[0])
        lines = {start[0], old_end[0], new_end[0]}
        tabs = bool(self._tab_width_cache[row]) or "\t" in line
        one_edit = new_end[1] - old_end[1] == len(line) - self._lengths[row]  # undoing may be many
        if len(lines) > 1 or tabs or not (self._width and one_edit):
            self.wrap(self._width)
            return
        self._lengths[row] = len(line)
        known = self._wrap_offsets[row]
        columns = start[1], old_end[1], new_end[1]
        self._wrap_offsets[row] = breaks_after_edit(line, self._width, known, *columns)
        if len(known) == len(self._wrap_offsets[row]):
            return
        if row == len(self._wrap_offsets) - 1:
            self._number_last_rows(row)
        else:
            self._number_rows()

    def _number_rows(self) -> None:
        self._offset_to_line_info = [
            (index, section)
            for index, offsets in enumerate(self._wrap_offsets)
            for section in range(len(offsets) + 1)
        ]
        self._line_index_to_offsets = []
        y = 0
        for offsets in self._wrap_offsets:
            self._line_index_to_offsets.append([*range(y, y + len(offsets) + 1)])
            y += len(offsets) + 1

    def _number_last_rows(self, row: int) -> None:
        old = self._line_index_to_offsets[row]
        count = len(self._wrap_offsets[row]) + 1
        del self._offset_to_line_info[old[0] + count :]
        self._offset_to_line_info += ((row, section) for section in range(len(old), count))
        self._line_index_to_offsets[row] = [*range(old[0], old[0] + count)]

    def get_sections(self, line_index: int) -> list[str]:
        """A line as it is wrapped."""
        line = self.document.get_line(line_index)
        return [line[start:end] for start, end in pairwise(self._bounds(line_index))]

    def location_to_offset(self, location: Location) -> Offset:
        """Where a place in the text is on the screen."""
        row, column = location
        offsets = self._wrap_offsets[row]
        section = bisect_right(offsets, column)
        start = offsets[section - 1] if section else 0
        part = expand_tabs_inline(self.document.get_line(row)[start:column], self._tab_width)
        return Offset(cell_len(part), self._line_index_to_offsets[row][section])

    def get_target_document_column(self, line_index: int, x_offset: int, y_offset: int) -> int:
        """The column of the character that covers cell `x_offset` of a wrapped line."""
        start, end = [*pairwise(self._bounds(line_index))][y_offset]
        section = self.document.get_line(line_index)[start:end]
        column = _at_cell(section, x_offset, self._tab_width)
        if y_offset not in {-1, len(self._wrap_offsets[line_index])} and column == len(section):
            column = before(section, column)
        return start + column

    def _bounds(self, row: int) -> list[int]:
        return [0, *self._wrap_offsets[row], len(self.document.get_line(row))]


class ScriptNavigator(DocumentNavigator):
    """Steps over whole characters."""

    def get_location_left(self, location: Location) -> Location:
        """One character back, to the line above from the start of a line."""
        row, column = location
        if column == 0:
            return super().get_location_left(location)
        return row, before(self._document[row], column)

    def get_location_right(self, location: Location) -> Location:
        """One character on, to the line below from the end of a line."""
        row, column = location
        line = self._document[row]
        if column >= len(line):
            return super().get_location_right(location)
        return row, after(line, column)

    def get_location_end(self, location: Location) -> Location:
        """The end of a wrapped line: on its last character where more of the line follows."""
        row, column = super().get_location_end(location)
        line = self._document[row]
        return row, (column if column == len(line) else before(line, column + 1))


class ScriptLine(Text):
    """A line whose styles cover whole characters."""

    def stylize(self, style: str | Style, start: int = 0, end: int | None = None) -> None:
        """Style from `start` to `end`, as far as the character before `end` reaches."""
        if end is not None and end > start:
            end = forward(self.plain, end)
        super().stylize(style, start, end)


def is_text(character: str) -> bool:
    """Whether a key's character belongs into a text, which is more than Python calls printable.

    So are joiners, wide spaces, separators of lines, and emoji newer than this Python.
    """
    if len(character) != 1 or category(character) == "Cc":
        return False
    return category(character) in _SEPARATORS or clean(character) == character


def word_left(line: str, column: int) -> int:
    """Where the word, or the run of signs, before `column` starts; spaces are skipped."""
    return _without_last(clusters(line[:column]))


def word_right(line: str, column: int) -> int:
    """Where the word, or the run of signs, after `column` ends; spaces are skipped."""
    return len(line) - _without_last(clusters(line[column:])[::-1])


def _without_last(parts: list[str]) -> int:
    """The length of the characters before the spaces at their end and the word before those."""
    while parts and parts[-1].isspace():
        parts.pop()
    kind = _is_word(parts[-1]) if parts else False
    while parts and not parts[-1].isspace() and _is_word(parts[-1]) == kind:
        parts.pop()
    return sum(map(len, parts))


def _is_word(cluster: str) -> bool:
    return cluster[0].isalnum() or cluster[0] == "_"


def _editor_breaks(line: str, width: int, tab_width: int) -> list[int]:
    if "\t" not in line:
        return breaks(line, width, hanging=False)
    flat, origins = "", list[int]()
    for part, tab in get_tab_widths(line, tab_width):
        start = origins[-1] + 1 if origins else 0
        flat += part + " " * tab
        origins += [*range(start, start + len(part)), *([start + len(part)] * tab)]
    return sorted({origins[offset] for offset in breaks(flat, width, hanging=False)} - {0})


def _at_cell(section: str, x: int, tab_width: int) -> int:
    """The index of the character that covers cell `x`; the length where none does."""
    used = index = 0
    for cluster in clusters(section):
        used += tab_width - used % tab_width if cluster == "\t" else cell_len(cluster)
        if used > x:
            return index
        index += len(cluster)
    return index
