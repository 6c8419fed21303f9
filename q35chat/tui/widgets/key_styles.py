"""What readline's and vi's keys do in the message, for who set them.

Works on a text area and asks its owner for nothing but to show the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from textual import events
from textual.document._document import Document, Location
from textual.widgets import TextArea

from q35chat.tui.markdown.graphemes import after, before
from q35chat.tui.widgets.vi_keys import KeyEffect, Vi
from q35chat.user_input import KeyStyle

Press = Callable[[str], None]


class Keys(Protocol):
    """Keys of one style."""

    @property
    def mode(self) -> str:
        """What to show of it; empty for nothing."""

    def takes(self, event: events.Key) -> bool:
        """Do what a key does in this style; whether it does anything."""

    def begin(self) -> None:
        """Another message is begun."""


def keys_of(style: KeyStyle, area: TextArea, press: Press) -> Keys:
    """The keys of a style over a text area; `press` does what another key does."""
    match style:
        case "readline":
            return ReadlineKeys(area, press)
        case "vi":
            return ViKeys(area, press)
        case _:
            return UsualKeys()


class UsualKeys:
    """No others than everybody has."""

    mode = ""

    def takes(self, _event: events.Key) -> bool:
        """Nothing."""
        return False

    def begin(self) -> None:
        """Nothing is kept."""


class ReadlineKeys:
    """Emacs's keys as a shell has them. What was cut last can be put in again."""

    mode = ""

    def __init__(self, area: TextArea, press: Press) -> None:
        self._area = area
        self._cut = ""
        self._does: dict[str, Callable[[], object]] = {
            "ctrl+p": partial(press, "up"),
            "ctrl+n": partial(press, "down"),
            "ctrl+b": area.action_cursor_left,
            "ctrl+f": area.action_cursor_right,
            "alt+b": area.action_cursor_word_left,
            "alt+f": area.action_cursor_word_right,
            "ctrl+h": area.action_delete_left,
            "ctrl+underscore": area.action_undo,
            "ctrl+t": self._exchange,
            "ctrl+y": lambda: area.insert(self._cut),
        }
        self._cuts: dict[str, Callable[[], Location]] = {
            "ctrl+k": self._line_end,
            "ctrl+u": lambda: (area.cursor_location[0], 0),
            "ctrl+w": self._blank_before,
            "alt+backspace": area.get_cursor_word_left_location,
            "alt+d": area.get_cursor_word_right_location,
        }

    def takes(self, event: events.Key) -> bool:
        """Do what readline does with a key."""
        if event.key in self._cuts:
            start, end = sorted((self._area.cursor_location, self._cuts[event.key]()))
            if start != end:
                self._cut = self._area.get_text_range(start, end)
                self._area.delete(start, end)
        elif event.key in self._does:
            self._does[event.key]()
        else:
            return False
        return True

    def begin(self) -> None:
        """What was cut stays for the next message."""

    def _line_end(self) -> Location:
        """The end of the line; from there that of what is on it, which joins the next one."""
        row, column = self._area.cursor_location
        end = self._area.get_cursor_line_end_location()
        return self._area.get_cursor_right_location() if end == (row, column) else end

    def _blank_before(self) -> Location:
        """Where the word begins that ends at the cursor, whatever signs are in it."""
        row, column = self._area.cursor_location
        line = self._area.document.get_line(row)[:column]
        words = line.rstrip()
        return row, max(words.rfind(" "), words.rfind("\t")) + 1

    def _exchange(self) -> None:
        """The characters around the cursor change places; at the end of a line the last two."""
        row, column = self._area.cursor_location
        line = self._area.document.get_line(row)
        middle = before(line, column) if column == len(line) else column
        start, end = before(line, middle), after(line, middle)
        if start < middle < end:
            turned = line[middle:end] + line[start:middle]
            self._area.replace(turned, (row, start), (row, end))
            self._area.move_cursor((row, end))


class ViKeys:
    """Vi's keys: Esc leads to commands, where a message is there to command."""

    def __init__(self, area: TextArea, press: Press) -> None:
        self._area = area
        self._press = press
        self._vi = Vi()

    @property
    def mode(self) -> str:
        """Whether letters are commands."""
        return "NORMAL" if self._vi.normal else ""

    def begin(self) -> None:
        """Letters are text again."""
        self._vi.insert()

    def takes(self, event: events.Key) -> bool:
        """Do what vi does with a key."""
        if event.key == "escape":
            outcome = self._vi.escape(self._area.text, self._at) if self._area.text else None
        elif not self._vi.normal:
            return False
        elif event.key == "backspace":
            outcome = self._vi.press("h", self._area.text, self._at)
        elif event.is_printable and event.character:
            outcome = self._vi.press(event.character, self._area.text, self._at)
        else:
            return False
        if outcome is not None:
            self._do(outcome)
        return outcome is not None

    @property
    def _document(self) -> Document:
        document = self._area.document
        assert isinstance(document, Document)
        return document

    @property
    def _at(self) -> int:
        return self._document.get_index_from_location(self._area.cursor_location)

    def _do(self, outcome: KeyEffect) -> None:
        place = self._document.get_location_from_index
        if outcome.text is not None:
            self._area.history.checkpoint()
            self._area.replace(outcome.text, place(outcome.start), place(outcome.end))
        if not outcome.keys:
            self._area.move_cursor(self._document.get_location_from_index(outcome.cursor))
        for key in outcome.keys:
            self._press(key)
