"""Choose a code block to copy: those of the newest answer first, the chosen one shown below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList, Static

from q35chat.text import pluralise
from q35chat.tui.markdown.source import CodeBlock
from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.text import clean, one_line
from q35chat.tui.widgets.options import Options

_SHOWN_LINES: Final = 8
_LEAST_WITH_FACTS: Final = 50


def row(number: int, block: CodeBlock, width: int) -> Content:
    """One block on one line: number, first line, and where there is room language and length."""
    facts = f"{one_line(block.language, 12):>12}  {pluralise(block.lines, 'line'):>10}"
    if width < _LEAST_WITH_FACTS:
        facts = ""
    room = max(8, width - len(facts) - 5)
    text = one_line(block.first_line or "empty", room)
    pad = " " * max(0, room - Content(text).cell_length)
    return Content.assemble((f"{number:>3}  ", "$accent bold"), text, pad, (facts, DIM))


def beginning(block: CodeBlock, width: int) -> Content:
    """The first lines, each cut to the width."""
    lines = clean(block.text).expandtabs(4).split("\n")
    shown = [
        line if cell_len(line) <= width else set_cell_size(line, width - 1) + "…"
        for line in lines[:_SHOWN_LINES]
    ]
    rest = len(lines) - len(shown)
    return Content("\n".join([*shown, *([f"… {pluralise(rest, 'more line')}"] if rest else [])]))


class BlocksScreen(Dialog[int | None]):
    """Gives the place of the chosen block, from 0."""

    TITLE = "Copy a code block"
    FOOT = "Enter or its number copies · Esc closes"
    BINDINGS = [  # noqa: RUF012
        Binding("f4", "leave", "Close", show=False),
        *(Binding(str(digit), f"take({digit - 1})", "Copy", show=False) for digit in range(1, 10)),
    ]

    def __init__(self, blocks: Sequence[CodeBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    def body(self) -> ComposeResult:
        """The list, and the beginning of the highlighted block."""
        yield Options(*self._rows())
        yield Static(id="block")

    def _rows(self) -> list[Content]:
        return [row(place + 1, it, self.inner_width) for place, it in enumerate(self._blocks)]

    def on_mount(self) -> None:
        """The first block of the newest answer is chosen."""
        options = self.query_one(OptionList)
        options.highlighted = 0
        options.focus()

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for place, prompt in enumerate(self._rows()):
            options.replace_option_prompt_at_index(place, prompt)
        self._look_at(options.highlighted)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._look_at(event.option_index)

    def _look_at(self, place: int | None) -> None:
        block = self._blocks[place or 0]
        self.query_one("#block", Static).update(beginning(block, self.inner_width))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_take(self, place: int) -> None:
        """Take the block with this number."""
        if place < len(self._blocks):
            self.dismiss(place)
