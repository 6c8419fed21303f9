"""The composer: text, pictures, suggestions, and what sending would take.

Says what the user did in messages; `ChatScreen` decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from q35chat.chat.service import Forecast
from q35chat.tui.arriving import Arriving
from q35chat.tui.completion import Choice, listing, path_word, slash_choices
from q35chat.tui.text import clean, count, slots
from q35chat.tui.widgets.chips import Chip, Chips, Waiting
from q35chat.tui.widgets.editor import Editor
from q35chat.tui.widgets.fitting_line import FittingLine
from q35chat.tui.widgets.suggestions import Suggestions

Draft = tuple[str, tuple[Waiting, ...]]
"""A text and its pictures."""

_DIM = "$foreground 60%"


def forecast_lines(forecast: Forecast) -> tuple[Content, ...]:
    """What the draft needs and what is left, or why it does not fit: in all words, then fewer."""
    if not forecast.fits:
        return (Content.assemble(("✗ ", "$error bold"), (refusal_words(forecast), "$error")),)
    needs = f"needs {slots(forecast.turn_slots)}"
    whole = f"{needs}{forecast.of_which}"
    left = f" · {count(forecast.left_for_answer)} left"
    ways = (
        (f"this turn {whole}", f"{left} for the answer"),
        (f"this turn {whole}", left),
        (whole, left),
        (needs, left),
    )
    return tuple(Content.assemble((head, "$foreground 80%"), (end, _DIM)) for head, end in ways)


def refusal_words(forecast: Forecast) -> str:
    """Why a draft does not fit."""
    reason = clean(forecast.reason)
    if reason.startswith("needs "):
        return f"this turn {reason}"
    return reason or f"this turn needs {slots(forecast.turn_slots)}: it does not fit"


class Composer(Vertical):
    """Where a message is written."""

    class Changed(Message):
        """The text or the pictures changed."""

    @dataclass
    class Sent(Message):
        """Enter, in the text that the editor had been filled with `filled` times by then."""

        text: str
        filled: int

    @dataclass
    class PicturesNamed(Message):
        """Files to attach."""

        paths: tuple[Path, ...]

    def __init__(self) -> None:
        super().__init__()
        self._arriving = Arriving()

    def compose(self) -> ComposeResult:
        """Suggestions, pictures, text, status."""
        yield Suggestions()
        yield Static(id="mode", markup=False)
        yield Chips()
        yield Editor()
        yield FittingLine(id="status")

    def on_mount(self) -> None:
        """Ready to type."""
        self.query_one("#mode").display = False
        self.editor.focus()

    @property
    def editor(self) -> Editor:
        """The text box."""
        return self.query_one(Editor)

    @property
    def chips(self) -> Chips:
        """The pictures."""
        return self.query_one(Chips)

    @property
    def empty(self) -> bool:
        """Nothing written, nothing attached."""
        return not self.editor.full_text.strip() and not self.chips.chips

    @property
    def draft(self) -> Draft:
        """What is written and attached, read or not."""
        return self.editor.full_text, self.chips.pictures

    def put(self, text: str, pictures: Sequence[Waiting] = ()) -> None:
        """Replace everything, before another key is looked at."""
        self.editor.put(text)
        self.chips.put(pictures)
        self.post_message(self.Changed())

    def show_status(self, *wordings: Content) -> None:
        """The line under the text: the first wording that fits on it, else the last, wrapped."""
        self.query_one(FittingLine).show(*wordings)

    def show_mode(self, text: str) -> None:
        """The line above the text, for editing; empty hides it."""
        mode = self.query_one("#mode", Static)
        mode.update(Content(text))
        mode.display = bool(text)
        self.set_class(bool(text), "-editing")

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if not self.editor.text:
            self.editor.pasted = False
        self._suggest()
        self.post_message(self.Changed())

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        asked = self._arriving.asked
        if asked is not None and path_word(self.editor.before_cursor) != asked:
            self._suggest()

    @on(Editor.Submitted)
    def _submitted(self, event: Editor.Submitted) -> None:
        event.stop()
        self._when_listed(partial(self._enter, event.filled))

    def _enter(self, filled: int) -> None:
        choice = self.query_one(Suggestions).chosen
        if choice is None:
            self.post_message(self.Sent(self.editor.full_text, filled))
        else:
            self._accept(choice, send=True)

    @on(Editor.PicturesPasted)
    def _pasted(self, event: Editor.PicturesPasted) -> None:
        event.stop()
        self.post_message(self.PicturesNamed(event.paths))

    @on(Editor.BackspacedEmpty)
    def _remove_last(self, event: Editor.BackspacedEmpty) -> None:
        event.stop()
        if self.chips.chips:
            self._drop(self.chips.chips[-1])

    @on(Chip.Removed)
    def _chip_removed(self, event: Chip.Removed) -> None:
        event.stop()
        self._drop(event.chip)
        self.editor.focus()

    def _drop(self, chip: Chip) -> None:
        self.chips.drop(chip)
        self.post_message(self.Changed())

    def _suggest(self) -> None:
        before = self.editor.before_cursor
        single_line = self.editor.document.line_count == 1
        commands = slash_choices(self.editor.text) if single_line and not self.editor.pasted else ()
        word = path_word(before)
        if word is None:
            self._arriving.forget()
            self._offer(commands)
        elif word != self._arriving.asked:
            self.editor.suggesting = True
            self._list_paths(word, self._arriving.ask(word))

    @work(thread=True, exclusive=True, group="paths")
    def _list_paths(self, word: str, question: int) -> None:
        self.call_later(self._offer_paths, question, listing(word, Path.cwd()))

    def _offer_paths(self, question: int, choices: tuple[Choice, ...]) -> None:
        if self._arriving.is_newest(question):
            self._offer(choices)
            self._arriving.arrived()

    def _when_listed(self, act: Callable[[], None]) -> None:
        """Act on the suggestions for the text as it is now; where there can be none, at once."""
        word = path_word(self.editor.before_cursor)
        if word is None:
            act()
        else:
            self._arriving.then(word, act)

    def _offer(self, choices: tuple[Choice, ...]) -> None:
        self.query_one(Suggestions).offer(choices)
        self.editor.suggesting = bool(choices)

    @on(Editor.SuggestionKey)
    def _suggestion_key(self, event: Editor.SuggestionKey) -> None:
        event.stop()
        suggestions = self.query_one(Suggestions)
        match event.key:
            case "up":
                self._when_listed(partial(suggestions.move, -1))
            case "down":
                self._when_listed(partial(suggestions.move, 1))
            case "escape":
                self._arriving.forget()
                self._offer(())
            case _:
                self._when_listed(lambda: self._accept(suggestions.chosen, send=False))

    @on(Suggestions.Picked)
    def _picked(self, event: Suggestions.Picked) -> None:
        event.stop()
        self._accept(event.choice, send=False)

    def _accept(self, choice: Choice | None, *, send: bool) -> None:
        self._arriving.forget()
        self._offer(())
        if choice is None:
            return
        editor = self.editor
        if choice.insert.startswith("/"):
            exact = editor.text.strip() == choice.insert.strip()
            if send and (exact or " " not in choice.label):
                editor.put(choice.insert.strip())
                self.post_message(self.Sent(editor.text, editor.filled))
            else:
                editor.put(choice.insert)
            return
        word = path_word(editor.before_cursor)
        editor.insert_picture_word(len(word or "") + 1, choice.insert)
        if choice.picture is not None:
            self.post_message(self.PicturesNamed((choice.picture,)))
