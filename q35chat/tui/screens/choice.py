"""Choose one of a few named things, each with a line of facts; the one in use is marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList

from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.text import clean, one_line

_COLUMN = 26


@dataclass(frozen=True, slots=True)
class Item:
    """One of them: its name, what is said of it, and whether it is in use."""

    name: str
    facts: str
    in_use: bool = False


def row(item: Item, width: int) -> Content:
    """One thing on one line."""
    name = one_line(item.name, _COLUMN - 2)
    gap = " " * max(1, _COLUMN - Content(name).cell_length)
    sign = ("● ", "$primary") if item.in_use else ("  ", "")
    room = max(8, width - _COLUMN - 2)
    return Content.assemble(sign, (name, "bold"), gap, (one_line(clean(item.facts), room), DIM))


class ChoiceScreen(Dialog[str | None]):
    """Gives the name of the chosen one; `foot` says what Enter does."""

    def __init__(self, title: str, items: Sequence[Item], foot: str) -> None:
        super().__init__()
        self.TITLE, self.FOOT = title, foot  # type: ignore[misc]
        self._items = items

    def body(self) -> ComposeResult:
        """The list."""
        yield OptionList(*self._rows())

    def _rows(self) -> list[Content]:
        return [row(item, self.inner_width) for item in self._items]

    def on_mount(self) -> None:
        """The one in use is chosen at first."""
        options = self.query_one(OptionList)
        used = (place for place, item in enumerate(self._items) if item.in_use)
        options.highlighted = next(used, 0)
        options.focus()

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for place, prompt in enumerate(self._rows()):
            options.replace_option_prompt_at_index(place, prompt)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._items[event.option_index].name)
