"""What a click and a selection with the mouse take of a text on screen: a word, a paragraph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from textual import events
from textual.content import Content
from textual.geometry import Offset
from textual.selection import Selection
from textual.widget import Widget
from textual.widgets import Static

_WORD: Final = re.compile(r"\w+(?:['’.-]\w+)*|[^\w\s]+")
_TWICE, _THREE_TIMES = 2, 3


class Selectable(Widget):
    """A double click selects a word, a triple click a paragraph; Ctrl+C copies it."""

    def text_lines(self) -> Sequence[str]:
        """The lines that a selection counts."""
        raise NotImplementedError

    def on_click(self, event: events.Click) -> None:
        """Select what is clicked."""
        if event.chain not in {_TWICE, _THREE_TIMES}:
            return
        event.prevent_default()
        _, offset = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        lines = self.text_lines()
        if offset is None or not 0 <= offset.y < len(lines):
            return
        find = word_at if event.chain == _TWICE else paragraph_at
        start, end = find(lines, offset)
        self.screen.selections = {self: Selection(start, end)}


class SelectableText(Static, Selectable):
    """Text that is shown as it is.

    `Static` comes first: of several bases Textual takes styles and queries from the first alone.
    """

    def text_lines(self) -> Sequence[str]:
        """Its own lines; wrapping makes no more of them."""
        return Content(str(self.content)).plain.split("\n")


def word_at(lines: Sequence[str], place: Offset) -> tuple[Offset, Offset]:
    """The word, or the signs, at a place; the place alone where there are none."""
    for word in _WORD.finditer(lines[place.y]):
        if word.start() <= place.x < word.end():
            return Offset(word.start(), place.y), Offset(word.end(), place.y)
    return place, place


def paragraph_at(lines: Sequence[str], place: Offset) -> tuple[Offset, Offset]:
    """The lines around a place up to the next empty ones."""
    first = last = place.y
    while first and lines[first - 1].strip():
        first -= 1
    while last + 1 < len(lines) and lines[last + 1].strip():
        last += 1
    return Offset(0, first), Offset(len(lines[last]), last)
