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
from q35chat.tui.widgets.options import Options

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


class ListDialog(Dialog[str | None]):
    """A list of which one is chosen: gives its name, of `names`. `first` is chosen at first."""

    def __init__(self, names: Sequence[str], first: int) -> None:
        super().__init__()
        self._names = names
        self._first = first

    def row(self, place: int) -> Content:
        """What stands at a place, on one line."""
        raise NotImplementedError

    def body(self) -> ComposeResult:
        """The list."""
        yield Options(*(self.row(place) for place in range(len(self._names))))

    def on_mount(self) -> None:
        """Begin at the first choice."""
        options = self.query_one(OptionList)
        options.highlighted = self._first
        options.focus()

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for place in range(len(self._names)):
            options.replace_option_prompt_at_index(place, self.row(place))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])


class ChoiceScreen(ListDialog):
    """Gives the name of the chosen one, at first of the one in use; `foot` says what Enter does."""

    def __init__(self, title: str, items: Sequence[Item], foot: str) -> None:
        used = (place for place, item in enumerate(items) if item.in_use)
        super().__init__([item.name for item in items], next(used, 0))
        self.TITLE, self.FOOT = title, foot  # type: ignore[misc]
        self._items = items

    def row(self, place: int) -> Content:
        """One of the things."""
        return row(self._items[place], self.inner_width)
