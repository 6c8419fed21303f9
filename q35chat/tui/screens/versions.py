"""All turns of a chat as a tree: choose one to read the version that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual.binding import Binding
from textual.content import Content

from q35chat.chat.service import TreePlace
from q35chat.chat.text_files import split_files
from q35chat.tui.screens.choice import ListDialog
from q35chat.tui.screens.dialog import DIM
from q35chat.tui.text import one_line

_STEP: Final = 2
_DEEPEST: Final = 12


def row(place: TreePlace, width: int) -> Content:
    """One turn on one line, further to the right behind each fork."""
    indent = "  " * min(place.forks, _DEEPEST)
    sign = ("● ", "$primary") if place.shown else ("│ " if place.forks else "  ", DIM)
    speaker, style = ("you    ", "bold") if place.role == "user" else ("model  ", DIM)
    room = max(8, width - len(indent) - len(speaker) - _STEP)
    files, asked = split_files(place.text) if place.role == "user" else ((), place.text)
    text = one_line(" ".join([*(f"▤ {file.name}" for file in files), asked]), room) or "…"
    return Content.assemble(indent, sign, (speaker, style), text)


class VersionsScreen(ListDialog):
    """Gives the id of the chosen turn; the last one of the version on screen is chosen at first."""

    TITLE = "All versions of this chat"
    FOOT = "Enter shows that version · Esc closes"
    BINDINGS = [Binding("alt+up", "leave", "Close", show=False)]  # noqa: RUF012

    def __init__(self, places: Sequence[TreePlace]) -> None:
        shown = [number for number, place in enumerate(places) if place.shown]
        super().__init__([place.id for place in places], shown[-1] if shown else 0)
        self._places = places

    def rows(self) -> Sequence[Content]:
        """The turns."""
        return [row(place, self.inner_width) for place in self._places]
