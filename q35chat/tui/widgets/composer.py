"""The composer: text, pictures, the list of completions above, and what sending would take.

Asks the screen to send and to attach, which decides what follows; keys, pastes and what they ask
for are dealt with one after the other, so that the text is what it was when a key was pressed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import TextArea
from textual.worker import get_current_worker

from q35chat.chat.service import Forecast
from q35chat.settings.templates import templates
from q35chat.tui.application import application
from q35chat.tui.chat.completion import Choice, begins, listing, path_word, slash_choices
from q35chat.tui.clipboard_reading import Held
from q35chat.tui.markdown.wrapping import padded
from q35chat.tui.text import clean, count, one_line, slots
from q35chat.tui.widgets.chips import Chip, Chips, Waiting
from q35chat.tui.widgets.containers import FittingLine
from q35chat.tui.widgets.editor import Editor
from q35chat.tui.widgets.key_order import LatestQuery

if TYPE_CHECKING:
    from q35chat.tui.chat.file_search import FileSearch

Contents = tuple[str, tuple[Waiting, ...]]
"""A text and its pictures."""

_DIM = "$foreground 60%"
_SIGN, _APART = 2, 2
_COLUMN, _LEAST = 30, 12
_ROWS, _OTHER_ROWS = 8, 9
_UNREADABLE = "The clipboard cannot be read here; paste with your terminal, often Ctrl+Shift+V"


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


class Suggestions(Widget):
    """Completions one a line; hidden while there are none. Never takes the focus. `moved`: the
    highlighted one was chosen with a key."""

    @dataclass
    class Picked(Message):
        """A choice was clicked."""

        choice: Choice

    def __init__(self) -> None:
        super().__init__()
        self.choices: tuple[Choice, ...] = ()
        self.index = 0
        self.moved = False
        self.display = False

    @property
    def chosen(self) -> Choice | None:
        """The highlighted choice."""
        return self.choices[self.index] if self.choices else None

    def offer(self, choices: tuple[Choice, ...], *, again: bool = False) -> None:
        """Replace the choices; where they are `again` for the same text, the highlighted one
        stays so."""
        if choices != self.choices:
            kept = self.chosen if again else None
            self.index = choices.index(kept) if kept in choices else 0
            self.moved = self.moved and kept in choices
            self.choices = choices
            self.display = bool(choices)
            self.refresh(layout=True)

    def move(self, by: int) -> None:
        """Highlight another choice, going round."""
        if self.choices:
            self.index = (self.index + by) % len(self.choices)
            self.moved = True
            self.refresh()

    def get_content_height(self, *_: object) -> int:
        """A line for each, as far as the line that is written stays on screen."""
        return min(len(self.choices), max(1, min(_ROWS, self.app.size.height - _OTHER_ROWS)))

    @property
    def _first(self) -> int:
        """The first choice in sight: the highlighted one always is."""
        rows = max(1, self.content_size.height)
        return max(0, min(self.index - rows // 2, len(self.choices) - rows))

    def render(self) -> Content:
        """Label and detail, the highlighted line marked by sign and colour."""
        details = [clean(choice.detail) for choice in self.choices]
        room = self.content_size.width - _SIGN - _APART - max(map(cell_len, details), default=0)
        labels = [one_line(choice.label, max(_LEAST, room)) for choice in self.choices]
        column = max(_COLUMN if room >= _COLUMN else 0, *map(cell_len, labels), 0)
        lines = [
            Content.assemble(
                ("› " if index == self.index else "  ", "$accent bold"),
                (padded(label, column), "bold" if index == self.index else ""),
                (f"{' ' * _APART}{detail}", _DIM),
            )
            for index, (label, detail) in enumerate(zip(labels, details, strict=True))
        ]
        return Content("\n").join(lines[self._first :])

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked line."""
        place = self._first + event.y
        if 0 <= place < len(self.choices):
            self.post_message(self.Picked(self.choices[place]))


class Composer(Vertical):
    """Where a message is written."""

    class Changed(Message):
        """The text or the pictures changed."""

        def can_replace(self, message: Message) -> bool:
            """Of many that wait, one tells all."""
            return isinstance(message, Composer.Changed)

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        attach: Callable[[Sequence[Path]], None],
    ) -> None:
        super().__init__()
        self._send = send
        self.attach = attach
        self._latest = LatestQuery()
        self._seen = ""
        self._suggesting = False
        self._takes_commands = True
        self._search: FileSearch | None = None
        self._walking = False

    def compose(self) -> ComposeResult:
        """Suggestions, pictures, text, status."""
        yield Suggestions()
        yield FittingLine(id="mode")
        yield Chips()
        yield Editor(self)
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
    def contents(self) -> Contents:
        """What is written and attached, read or not."""
        return self.editor.full_text, self.chips.pictures

    def put(self, text: str, pictures: Sequence[Waiting] = ()) -> None:
        """Replace everything, before another key is looked at."""
        self.editor.put(text)
        self.chips.put(pictures)
        self.post_message(self.Changed())

    def show_status(self, *wordings: Content) -> None:
        """The line under the text: the first wording that fits on it, else the last, wrapped."""
        self.query_one("#status", FittingLine).wordings = wordings

    def show_mode(self, *wordings: str, commands: bool = True) -> None:
        """The line above the text, for editing, in the first wording that fits; none hides it.
        Without `commands` a text that looks like one is none."""
        self._takes_commands = commands
        mode = self.query_one("#mode", FittingLine)
        if wordings:
            mode.wordings = tuple(map(Content, wordings))
        mode.display = bool(wordings)
        self.set_class(bool(wordings), "-editing")

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if not self.editor.text:
            self.editor.pasted = False
        self._catch_up()
        self.post_message(self.Changed())

    def _catch_up(self) -> None:
        """Suggest for the text as it is, once for each."""
        if self.editor.text != self._seen:
            self._seen = self.editor.text
            self._suggest()

    @on(TextArea.SelectionChanged)
    def _cursor_moved(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        asked = self._latest.asked
        if asked is not None and path_word(self.editor.before_cursor) != asked:
            self._suggest()

    def takes(self, key: str) -> bool:
        """Whether a key is for sending or for the suggestions to the text as it is now."""
        self._catch_up()
        editor, suggestions = self.editor, self.query_one(Suggestions)
        completes = key == "tab" and path_word(editor.before_cursor) is not None
        if not (key == "enter" or completes or self._suggesting):
            return False
        match key:
            case "enter":
                # as soon as this key is done, before the next one
                self._when_listed(partial(editor.call_next, self._enter, editor.filled))
            case "up":
                self._when_listed(partial(suggestions.move, -1))
            case "down":
                self._when_listed(partial(suggestions.move, 1))
            case "escape":
                self._close()
            case _:
                self._when_listed(self._complete)
        return True

    def _complete(self) -> None:
        self._accept(self.query_one(Suggestions).chosen, send=False)

    async def _enter(self, filled: int) -> None:
        """Send, or take the suggestion that is meant; nothing where the text is another one by now
        than when the editor had been filled `filled` times."""
        if filled != self.editor.filled:
            return
        suggestions = self.query_one(Suggestions)
        choice = suggestions.chosen
        word = path_word(self.editor.before_cursor)
        if choice is not None and not (suggestions.moved or word is None or begins(choice, word)):
            self._close()
            choice = None
        if choice is None or self._accept(choice, send=True):
            await self._send(self.editor.full_text)

    def paste(self) -> None:
        """Put in what the clipboard holds: text where the cursor is now, a picture as a chip."""
        editor = self.editor
        where, filled = editor.selection, editor.filled

        def put(held: Held | None) -> None:
            if held is None:
                self.notify(_UNREADABLE, severity="warning", markup=False)
            elif held.picture:
                self._attach_pasted(held.picture)
            elif held.text:
                editor.put_in(held.text, where if filled == editor.filled else editor.selection)

        application(self).read_clipboard(put)

    def _attach_pasted(self, picture: bytes) -> None:
        from q35chat.tui.clipboard_reading import keep_picture  # noqa: PLC0415

        try:
            self.attach((keep_picture(picture),))
        except OSError as error:
            self.notify(f"The picture cannot be kept: {error}", severity="error", markup=False)

    def backspaced_empty(self) -> None:
        """Backspace in an empty text takes away the last picture."""
        if self.chips.chips:
            self._drop(self.chips.chips[-1])

    def show_keys(self, mode: str) -> None:
        """What the keys mean, in the frame."""
        self.border_subtitle = mode

    def ended_empty(self) -> None:
        """Ctrl+D in an empty message leaves."""
        if self.empty:
            self.app.call_later(self.app.action_quit)

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
        text = self.editor.text
        written = self._takes_commands and not self.editor.pasted
        typed = written and single_line and text.startswith("/")
        commands = slash_choices(text, templates()) if typed else ()
        word = path_word(before)
        if word is None:
            self._latest.forget()
            self._offer(commands)
        elif word != self._latest.asked:
            self._suggesting = True
            self._look(self._latest.ask(word), word)
            if word and self._file_search().old and not self._walking:
                self._walking = True
                self.run_worker(self._walk, thread=True, group="files")

    def _look(self, question: int, word: str) -> None:
        """Answer a question in a worker: what begins with the word, then what has parts of it."""
        search = self._file_search()

        def work() -> None:
            found = listing(word, search.folder)
            named = {choice.label for choice in found}
            more = search.choices(word, _ROWS)
            found += tuple(choice for choice in more if choice.label not in named)
            if not get_current_worker().is_cancelled:
                self.call_later(self._offer_paths, question, found[:_ROWS])

        self.run_worker(work, thread=True, exclusive=True, group="paths")

    def _file_search(self) -> FileSearch:
        """The search below the current folder; loaded with the first path that is completed."""
        from q35chat.tui.chat.file_search import FileSearch  # noqa: PLC0415

        if self._search is None:
            self._search = FileSearch(Path.cwd())
        return self._search

    def _walk(self) -> None:
        self._file_search().walk()
        self.call_later(self._look_again)

    def _look_again(self) -> None:
        """More files are known now. The question stays the one that keys wait for or that was
        answered: a key means the list that is on screen, and none is lost."""
        self._walking = False
        if self._latest.asked is not None:
            self._look(self._latest.newest, self._latest.asked)

    def _offer_paths(self, question: int, choices: tuple[Choice, ...]) -> None:
        if self._latest.is_newest(question):
            self._offer(choices, again=self._latest.there)
            self._latest.arrived()

    def _when_listed(self, act: Callable[[], None]) -> None:
        """Act on the suggestions for the text as it is now; where there can be none, at once."""
        word = path_word(self.editor.before_cursor)
        if word is None:
            act()
        else:
            self._latest.then(word, act)

    def _offer(self, choices: tuple[Choice, ...], *, again: bool = False) -> None:
        self.query_one(Suggestions).offer(choices, again=again)
        self._suggesting = bool(choices)

    def _close(self) -> None:
        self._latest.forget()
        self._offer(())

    @on(Suggestions.Picked)
    def _picked(self, event: Suggestions.Picked) -> None:
        event.stop()
        self._accept(event.choice, send=False)

    def _accept(self, choice: Choice | None, *, send: bool) -> bool:
        """Take a suggestion into the text; whether `send` sends what stands there now."""
        self._close()
        if choice is None:
            return False
        editor = self.editor
        if choice.insert.startswith("/"):
            exact = editor.text.strip() == choice.insert.strip()
            whole = send and (exact or " " not in choice.label)
            editor.put(choice.insert.strip() if whole else choice.insert)
            return whole
        word = path_word(editor.before_cursor)
        editor.insert_picture_word(len(word or "") + 1, choice.insert)
        if choice.file is not None:
            self.attach((choice.file,))
        return False
