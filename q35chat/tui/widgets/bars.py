"""The single lines of the screen: title above, notice and hints below."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from q35chat.tui.text import clean, one_line

_DIM = "$foreground 60%"
_GAP = "  "

Hint = tuple[str, str]
"""A key, and in a word or two what it does."""


class TitleBar(Widget):
    """Program, conversation, and the state of the model."""

    _title = _state = ""

    def show(self, title: str, state: str) -> None:
        """Change either side."""
        if (title, state) != (self._title, self._state):
            self._title, self._state = title, state
            self.refresh()

    def render(self) -> Content:
        """Both sides, the title cut to what is left."""
        width = self.content_size.width
        state = one_line(self._state, width // 2)
        room = max(0, width - len("q35chat · ") - len(state) - 2)
        title = one_line(self._title or "new chat", room)
        left = Content.assemble(("q35chat", "$primary bold"), (" · ", _DIM), title)
        gap = " " * max(1, width - left.cell_length - Content(state).cell_length)
        return Content.assemble(left, gap, (state, _DIM))


class NoticeLine(Static):
    """A quiet line; hidden while there is nothing to say."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(markup=False, id=id)
        self._text = ""
        self.display = False

    def say(self, text: str, *, sign: str = "▲", colour: str = "$warning") -> None:
        """Show a line, or hide with an empty one."""
        self.display = bool(text)
        if text and text != self._text:
            self._text = text
            self.update(Content.assemble((f"{sign} ", f"{colour} bold"), (clean(text), colour)))


class Hints(Widget):
    """The keys that matter now, as many as fit; those that always matter stand at the right."""

    _hints: tuple[Hint, ...] = ()
    _always: tuple[Hint, ...] = ()

    def show(self, hints: Sequence[Hint], always: Sequence[Hint]) -> None:
        """Change the hints, the most useful first; `always` never gives way to them."""
        if (tuple(hints), tuple(always)) != (self._hints, self._always):
            self._hints, self._always = tuple(hints), tuple(always)
            self.refresh()

    def render(self) -> Content:
        """Both groups, leaving out what does not fit."""
        return hint_line(self._hints, self._always, self.content_size.width)


def hint_line(hints: Sequence[Hint], always: Sequence[Hint], width: int) -> Content:
    """`hints` from the left, `always` at the right end of `width` cells."""
    right = _joined(always, width)
    left = _joined(hints, width - right.cell_length - len(_GAP))
    gap = " " * max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, gap, right)


def _joined(hints: Sequence[Hint], width: int) -> Content:
    shown = Content("")
    for key, words in hints:
        between = _GAP if shown.cell_length else ""
        hint = Content.assemble(between, (key, "bold"), (f" {words}", _DIM))
        if shown.cell_length + hint.cell_length > width:
            break
        shown = Content.assemble(shown, hint)
    return shown
