"""The text box of the composer. Enter asks to send; a paste never does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text
from textual import events
from textual.document._document import Location
from textual.message import Message
from textual.widgets import TextArea

from q35chat.tui.completion import path_word
from q35chat.tui.history import History
from q35chat.tui.line_editing import (
    ScriptLine,
    ScriptNavigator,
    WrappedScript,
    is_text,
    word_left,
    word_right,
)
from q35chat.tui.paste import fold_before, fold_label, folds, picture_paths, unfold
from q35chat.tui.text import clean


class Editor(TextArea):
    """Multi-line, grows with its text, remembers what was sent. `filled` counts how often the
    whole text was replaced: a key pressed before that means another text."""

    @dataclass
    class Submitted(Message):
        """Enter was pressed, whether or not there are suggestions; `filled` is as it was then."""

        filled: int

    class BackspacedEmpty(Message):
        """Backspace in an empty box."""

    @dataclass
    class PicturesPasted(Message):
        """A paste named picture files."""

        paths: tuple[Path, ...]

    @dataclass
    class SuggestionKey(Message):
        """A key for the list of suggestions, open or on its way."""

        key: str

    def __init__(self) -> None:
        super().__init__(
            id="editor",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask anything · @ attaches a picture · / for commands",
        )
        self.cursor_blink = False
        self.past = History()
        self.suggesting = False
        self.pasted = False
        self.filled = 0
        self._folded: dict[int, str] = {}

    def _set_document(self, text: str, language: str | None) -> None:
        super()._set_document(text, language)
        self.wrapped_document = WrappedScript(self.document, tab_width=self.indent_width)
        self.navigator = ScriptNavigator(self.wrapped_document)
        self._rewrap_and_refresh_virtual_size()

    def get_line(self, line_index: int) -> Text:
        """A line to be styled."""
        return ScriptLine(self.document.get_line(line_index), end="", no_wrap=True)

    def get_cursor_word_left_location(self) -> Location:
        """The start of the word before the cursor."""
        row, column = self.cursor_location
        if row and not column:
            return self.get_cursor_left_location()
        return row, word_left(self.document.get_line(row), column)

    def get_cursor_word_right_location(self) -> Location:
        """The end of the word after the cursor."""
        row, column = self.cursor_location
        if self.cursor_at_end_of_line:
            return self.get_cursor_right_location()
        return row, word_right(self.document.get_line(row), column)

    def action_delete_word_right(self) -> None:
        """Delete to the end of the word after the cursor."""
        start, end = self.selection
        if start == end:
            end = self.get_cursor_word_right_location()
        self._delete_via_keyboard(start, end)

    @property
    def full_text(self) -> str:
        """The text with folded pastes in full."""
        return unfold(self.text, self._folded)

    def put(self, text: str) -> None:
        """Replace the text and go to its end."""
        self._folded.clear()
        self.pasted = False
        self.filled += 1
        self.text = text
        self.move_cursor(self.document.end)

    def insert_picture_word(self, word_length: int, insert: str) -> None:
        """Replace the word before the cursor by a completion."""
        row, column = self.cursor_location
        self.replace(insert, (row, column - word_length), (row, column))

    @property
    def before_cursor(self) -> str:
        """The part of the cursor's line before the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    async def _on_key(self, event: events.Key) -> None:
        if self._handled(event.key):
            event.stop()
            event.prevent_default()
            return
        if event.character and not event.is_printable and is_text(event.character):
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(event.character, *self.selection)
            return
        await super()._on_key(event)

    def _handled(self, key: str) -> bool:
        if key == "enter":
            self.post_message(self.Submitted(self.filled))
            return True
        completes = key == "tab" and path_word(self.before_cursor) is not None
        if completes or (self.suggesting and key in {"up", "down", "tab", "escape"}):
            self.post_message(self.SuggestionKey(key))
            return True
        if key in {"ctrl+j", "shift+enter", "alt+enter"}:
            self._replace_via_keyboard("\n", *self.selection)
            return True
        if key == "up":
            return self._walk_back()
        return key == "down" and self._walk_on()

    def _walk_back(self) -> bool:
        if self.text and not self.past.shows(self.text):
            return False
        if self.text and not self.cursor_at_first_line:
            return False
        text = self.past.earlier(self.text)
        if text is not None:
            self.put(text)
            self.move_cursor((0, 0))
        return text is not None

    def _walk_on(self) -> bool:
        if not self.past.shows(self.text) or not self.cursor_at_last_line:
            return False
        text = self.past.later()
        if text is not None:
            self.put(text)
        return text is not None

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        paths = picture_paths(event.text)
        if paths:
            self.post_message(self.PicturesPasted(paths))
            return
        self.pasted = True
        text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        if folds(text):
            number = len(self._folded) + 1
            self._folded[number] = text
            text = fold_label(number, text)
        result = self._replace_via_keyboard(text, *self.selection)
        if result is not None:
            self.move_cursor(result.end_location)
        self.focus()

    def action_delete_left(self) -> None:
        """Delete backwards; a folded paste goes as one."""
        if not self.text:
            self.post_message(self.BackspacedEmpty())
            return
        row, column = self.cursor_location
        length = 0
        if self.selection.is_empty:
            length = fold_before(self.document.get_line(row), column)
        if length:
            self.delete((row, column - length), (row, column))
        else:
            super().action_delete_left()
