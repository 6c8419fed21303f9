"""Choose one of a few named things, each with a line of facts; the one in use is marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList

from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.text import clean, one_line, packed
from q35chat.tui.widgets.options import Options

_SIGN, _APART = 2, 2
_DOT = " · "
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class Item:
    """One of them: its name, what is said of it, and whether it is in use."""

    name: str
    facts: str
    in_use: bool = False


def rows(items: Sequence[Item], width: int) -> list[Content]:
    """A line for each; where what is said of one has no room beside its name, all have it below
    theirs, broken between facts."""
    names = [one_line(item.name, min(_LONGEST_NAME, width - _SIGN)) for item in items]
    facts = [clean(item.facts) for item in items]
    column = max(map(cell_len, names), default=0) + _APART
    beside = all(_SIGN + column + cell_len(it) <= width for it in facts)
    found = []
    for item, name, said in zip(items, names, facts, strict=True):
        sign = ("● ", "$primary") if item.in_use else ("  ", "")
        if beside:
            shown = " " * (column - cell_len(name)) + said
        else:
            lines = packed(said.split(_DOT), width - 2 * _SIGN, _DOT)
            shown = "".join(f"\n{' ' * 2 * _SIGN}{line}" for line in lines)
        found.append(Content.assemble(sign, (name, "bold"), (shown, DIM)))
    return found


class ListDialog(Dialog[str | None]):
    """A list of which one is chosen: gives its name, of `names`. `first` is chosen at first."""

    def __init__(self, names: Sequence[str], first: int) -> None:
        super().__init__()
        self._names = names
        self._first = first

    def rows(self) -> Sequence[Content]:
        """What stands at each place, at the present width."""
        raise NotImplementedError

    def body(self) -> ComposeResult:
        """The list."""
        yield Options(*self.rows())

    def on_mount(self) -> None:
        """Begin at the first choice."""
        options = self.query_one(OptionList)
        options.highlighted = self._first
        options.focus()

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for place, row in enumerate(self.rows()):
            options.replace_option_prompt_at_index(place, row)

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

    def rows(self) -> Sequence[Content]:
        """The things."""
        return rows(self._items, self.inner_width)
