"""The single lines of the screen: title above, notice and hints below."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from q35chat.tui.text import clean, one_line

_DIM = "$foreground 60%"


class TitleBar(Widget):
    """Program, conversation, and the state of the model."""

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._state = ""

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
        title = one_line(self._title or "new conversation", room)
        left = Content.assemble(("q35chat", "$primary bold"), (" · ", _DIM), title)
        gap = " " * max(1, width - left.cell_length - Content(state).cell_length)
        return Content.assemble(left, gap, (state, _DIM))


class NoticeLine(Static):
    """A quiet line; hidden while there is nothing to say."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(markup=False, id=id)
        self.display = False

    def say(self, text: str, *, sign: str = "▲", colour: str = "$warning") -> None:
        """Show a line, or hide with an empty one."""
        self.display = bool(text)
        if text:
            self.update(Content.assemble((f"{sign} ", f"{colour} bold"), (clean(text), colour)))


class Hints(Widget):
    """The keys that matter now, as many as fit."""

    def __init__(self) -> None:
        super().__init__()
        self._hints: tuple[tuple[str, str], ...] = ()

    def show(self, hints: Sequence[tuple[str, str]]) -> None:
        """Change the hints: (key, what it does) pairs, the most useful first."""
        if tuple(hints) != self._hints:
            self._hints = tuple(hints)
            self.refresh()

    def render(self) -> Content:
        """Left to right, leaving out what does not fit."""
        shown, width = Content(""), self.content_size.width
        for key, words in self._hints:
            hint = Content.assemble((key, "bold"), (f" {words}", _DIM))
            if shown.cell_length and shown.cell_length + 3 + hint.cell_length > width:
                continue
            shown = Content.assemble(shown, "   ", hint) if shown.cell_length else hint
        return shown
