"""All turns of a chat as a tree: choose one to read the version that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList

from q35chat.chat.service import Place
from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.text import one_line

_STEP: Final = 2
_DEEPEST: Final = 12


def row(place: Place, width: int) -> Content:
    """One turn on one line, further to the right behind each fork."""
    indent = "  " * min(place.forks, _DEEPEST)
    sign = ("● ", "$primary") if place.shown else ("│ " if place.forks else "  ", DIM)
    speaker, style = ("you    ", "bold") if place.role == "user" else ("model  ", DIM)
    room = max(8, width - len(indent) - len(speaker) - _STEP)
    text = one_line(place.text, room) or "…"
    return Content.assemble(indent, sign, (speaker, style), text)


class VersionsScreen(Dialog[str | None]):
    """Gives the id of the chosen turn; the last one of the version on screen is chosen at first."""

    TITLE = "All versions of this chat"
    FOOT = "Enter shows that version · Esc closes"
    BINDINGS = [Binding("alt+up", "leave", "Close", show=False)]  # noqa: RUF012

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__()
        self._places = places

    def body(self) -> ComposeResult:
        """The list."""
        yield OptionList(*self._rows())

    def _rows(self) -> list[Content]:
        return [row(place, self.inner_width) for place in self._places]

    def on_mount(self) -> None:
        """Begin where the reader is."""
        options = self.query_one(OptionList)
        shown = [number for number, place in enumerate(self._places) if place.shown]
        options.highlighted = shown[-1] if shown else 0
        options.focus()

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for number, prompt in enumerate(self._rows()):
            options.replace_option_prompt_at_index(number, prompt)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._places[event.option_index].id)
