"""The list of completions above the text. It never takes the focus."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from q35chat.tui.chat.completion import Choice
from q35chat.tui.markdown.wrapping import padded
from q35chat.tui.text import clean, one_line

_SIGN, _APART = 2, 2
_COLUMN, _LEAST = 30, 12


class Suggestions(Widget):
    """Choices one a line; hidden while there are none."""

    @dataclass
    class Picked(Message):
        """A choice was clicked."""

        choice: Choice

    def __init__(self) -> None:
        super().__init__()
        self.choices: tuple[Choice, ...] = ()
        self.index = 0
        self.display = False

    @property
    def chosen(self) -> Choice | None:
        """The highlighted choice."""
        return self.choices[self.index] if self.choices else None

    def offer(self, choices: tuple[Choice, ...]) -> None:
        """Replace the choices."""
        if choices != self.choices:
            self.choices, self.index = choices, 0
            self.display = bool(choices)
            self.refresh(layout=True)

    def move(self, by: int) -> None:
        """Highlight another choice, going round."""
        if self.choices:
            self.index = (self.index + by) % len(self.choices)
            self.refresh()

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
                (f"{' ' * _APART}{detail}", "$foreground 55%"),
            )
            for index, (label, detail) in enumerate(zip(labels, details, strict=True))
        ]
        return Content("\n").join(lines)

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked line."""
        if 0 <= event.y < len(self.choices):
            self.post_message(self.Picked(self.choices[event.y]))
