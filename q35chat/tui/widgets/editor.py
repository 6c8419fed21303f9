"""The text box of the composer. Enter asks to send; a paste never does.

What follows from a key is asked of an `Owner` at once, before the next key is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from rich.text import Text
from textual import events
from textual.document._document import EditResult, Location
from textual.document._edit import Edit
from textual.widgets.text_area import Selection

from q35chat.tui.application import application
from q35chat.tui.chat.paste import (
    file_before,
    file_paths,
    fold_before,
    fold_label,
    folds,
    plain_text,
    unfold,
)
from q35chat.tui.widgets.key_order import TextField
from q35chat.tui.widgets.key_styles import Keys, UsualKeys, keys_of
from q35chat.tui.widgets.line_editing import (
    ScriptLine,
    ScriptNavigator,
    WrappedScript,
    is_text,
    word_left,
    word_right,
)

_OWNERS: Final = frozenset({"enter", "up", "down", "tab"})


class History:
    """Earlier questions, walked with the arrow keys: sent texts, oldest first, and a place among
    them; the draft waits at the end."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)
        self._at = len(self._texts)
        self._draft = ""

    def add(self, text: str) -> None:
        """Remember a sent text and go back to the end."""
        if text and (not self._texts or self._texts[-1] != text):
            self._texts.append(text)
        self._at = len(self._texts)
        self._draft = ""

    def add_earlier(self, texts: Iterable[str]) -> None:
        """Texts from before all that are known, oldest first; what is known stays where it is."""
        fresh = [text for text in texts if text not in self._texts]
        self._texts[:0] = fresh
        self._at += len(fresh)

    @property
    def walking(self) -> bool:
        """Whether an earlier text is shown."""
        return self._at < len(self._texts)

    def shows(self, text: str) -> bool:
        """Whether `text` is the unchanged entry at this place."""
        return self.walking and self._texts[self._at] == text

    def earlier(self, current: str) -> str | None:
        """The text before this place, keeping `current` as the draft; None at the start."""
        if self._at == 0:
            return None
        if not self.walking:
            self._draft = current
        self._at -= 1
        return self._texts[self._at]

    def later(self) -> str | None:
        """The text after this place, the draft at last; None when already there."""
        if not self.walking:
            return None
        self._at += 1
        return self._texts[self._at] if self.walking else self._draft


class Owner(Protocol):
    """Who decides what a key means beyond the text."""

    def takes(self, key: str) -> bool:
        """Whether a key, Enter or one for a list of suggestions, was not for the text."""

    def backspaced_empty(self) -> None:
        """Backspace in an empty box."""

    def ended_empty(self) -> None:
        """Ctrl+D in an empty box, which ends a line of input."""

    def attach(self, paths: tuple[Path, ...]) -> None:
        """A paste, or a word that was typed, named picture files."""

    def paste(self) -> None:
        """The key that pastes: what the clipboard holds is to be put in."""

    def show_keys(self, mode: str) -> None:
        """What the keys mean now, where that changes; empty for what they always mean."""


_HINTS = ("Ask anything", " · @ attaches a file", " · / for commands")


class Editor(TextField):
    """Multi-line, grows with its text, remembers what was sent. `filled` counts how often the
    whole text was replaced: a key pressed before that means another text."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(
            id="editor",
            compact=True,
            highlight_cursor_line=False,
        )
        self._sees_pictures = True
        self.cursor_blink = False
        self._owner = owner
        self.past = History()
        self.pasted = False
        self.filled = 0
        self._folded: dict[int, str] = {}
        self._keys: Keys = UsualKeys()

    def on_mount(self) -> None:
        """The keys are of the user's own style."""
        self._keys = keys_of(application(self).keymap.style, self, self._press)

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

    def offer_pictures(self, seen: bool) -> None:
        """Say in the empty field how a file is attached, or not where no pictures are `seen`."""
        self._sees_pictures = seen
        self._show_hint()

    def _show_hint(self) -> None:
        ask, attach, commands = _HINTS
        wordings = (ask + attach + commands, ask + commands, ask)[not self._sees_pictures :]
        fitting = (words for words in wordings if len(words) <= self.size.width)
        self.placeholder = next(fitting, ask)

    def on_resize(self) -> None:
        """The hint is one that fits, and the cursor stays in sight."""
        self._show_hint()
        self.call_after_refresh(self.scroll_cursor_visible)

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
        if not text:
            self._keys.begin()
            self._owner.show_keys(self._keys.mode)

    def take(self, text: str) -> None:
        """Replace the text by one that was written before or elsewhere, which is no command and
        names no file; undoing it brings back what stood here."""
        self.pasted = True
        self.replace(plain_text(text), self.document.start, self.document.end)
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

    def edit(self, edit: Edit) -> EditResult:
        """Change the text. In an empty one nothing is pasted."""
        result = super().edit(edit)
        self.pasted = self.pasted and bool(self.text)
        return result

    async def _on_key(self, event: events.Key) -> None:
        character = event.character or ""
        if self._handled_first(event):
            event.stop()
            event.prevent_default()
        elif not event.is_printable and is_text(character):
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(plain_text(character), *self.selection)

    def _handled_first(self, event: events.Key) -> bool:
        """A list of suggestions has its keys first, then the user's style."""
        if event.key == "escape" and self._owner.takes(event.key):
            return True
        if self._keys.takes(event):
            self._owner.show_keys(self._keys.mode)
            return True
        return self._handled(event.key)

    def _press(self, key: str) -> None:
        """Do what another key does, at once."""
        if not self._handled(key):
            does = {"up": self.action_cursor_up, "down": self.action_cursor_down}
            does.get(key, self.action_undo)()

    def _handled(self, key: str) -> bool:
        if key in _OWNERS and self._owner.takes(key):
            return True
        if key == "space":
            return self._attach_typed()
        if key in {"ctrl+j", "shift+enter", "alt+enter"}:
            self._attach_typed()
            self._replace_via_keyboard("\n", *self.selection)
            return True
        if key == "up":
            return self._walk_back()
        return key == "down" and self._walk_on()

    def _attach_typed(self) -> bool:
        """Attach the picture whose path ends at the cursor; whether nothing stands in its place, so
        that no space is wanted either. In a command, a path is for the command."""
        before = self.before_cursor
        found = file_before(before)
        if found is None or (self.text.startswith("/") and found[0] < len(before)):
            return False
        length, path, rest = found
        row, column = self.cursor_location
        self.replace(rest, (row, column - length), (row, column))
        self._owner.attach((path,))
        return not rest and before[:-length][-1:] in {"", " "}

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
        self.put_in(event.text, self.selection)
        self.focus()

    def action_paste(self) -> None:
        """What the clipboard holds by now, not what was copied here once."""
        self._owner.paste()

    def action_cut(self) -> None:
        """Cut what is selected; without that the key is the first of two that open an editor."""
        if not self.selection.is_empty:
            super().action_cut()

    def put_in(self, pasted: str, where: Selection) -> None:
        """Put what is pasted where the cursor was when it was asked for; what was typed since then
        stays behind it. Paths of pictures alone are attached."""
        paths = file_paths(pasted)
        if paths:
            self._owner.attach(paths)
            return
        self.pasted = True
        text = plain_text(pasted)
        if folds(text):
            number = len(self._folded) + 1
            self._folded[number] = text
            text = fold_label(number, text)
        if self.selection != where:
            self.replace(text, *where, maintain_selection_offset=True)
            return
        result = self._replace_via_keyboard(text, *where)
        if result is not None:
            self.move_cursor(result.end_location)

    def action_delete_right(self) -> None:
        """Delete the character after the cursor; in an empty box there is nothing to end but the
        program."""
        if self.text:
            super().action_delete_right()
        else:
            self._owner.ended_empty()

    def action_delete_left(self) -> None:
        """Delete backwards; a folded paste goes as one."""
        if not self.text:
            self._owner.backspaced_empty()
            return
        row, column = self.cursor_location
        length = 0
        if self.selection.is_empty:
            length = fold_before(self.document.get_line(row), column)
        if length:
            self.delete((row, column - length), (row, column))
        else:
            super().action_delete_left()
