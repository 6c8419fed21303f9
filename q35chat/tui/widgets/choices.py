"""One of a few choices, all of them on screen: a line each, or side by side.

Arrow keys and clicks choose. Enter is left to the screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from q35chat.tui.text import clean

_CHOSEN, _OTHER = "●", "○"
_APART: Final = 3


@dataclass(frozen=True, slots=True)
class Option:
    """What is chosen, and how it is called."""

    value: str
    label: str


class Choices(Widget, can_focus=True):
    """Always has one chosen; `across` puts them side by side, without details."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,left", "move(-1)", "Previous", show=False),
        Binding("down,right,space", "move(1)", "Next", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Another one is chosen."""

        choices: Choices

        @property
        def control(self) -> Choices:
            """For `on` with a selector."""
            return self.choices

    def __init__(
        self,
        options: Sequence[Option],
        chosen: str,
        *,
        id: str,  # noqa: A002 - Textual's name
        across: bool = False,
    ) -> None:
        super().__init__(id=id)
        self._options = tuple(options)
        self._details: Mapping[str, str] = {}
        self._across = across
        self.value = chosen

    def offer(self, options: Sequence[Option]) -> None:
        """Offer other choices; the chosen one stays chosen where it is among them."""
        self._options = tuple(options)
        if self.value not in [option.value for option in options]:
            self.value = options[0].value
        self.refresh(layout=True)

    def describe(self, details: Mapping[str, str]) -> None:
        """Put words behind the choices, by value."""
        self._details = details
        self.refresh()

    def get_content_height(self, *_: object) -> int:
        """A line each."""
        return 1 if self._across else len(self._options)

    def render(self) -> Content:
        """Marks, labels, details."""
        if self._across:
            return Content(" " * _APART).join([self._choice(option) for option in self._options])
        width = max(len(option.label) for option in self._options)
        return Content("\n").join([
            Content.assemble(
                self._choice(option, width), (f"  {clean(self._details.get(option.value, ''))}",
                                              "$foreground 60%")
            )
            for option in self._options
        ])  # fmt: skip

    def _choice(self, option: Option, width: int = 0) -> Content:
        chosen = option.value == self.value
        mark = (f"{_CHOSEN} ", "$primary bold") if chosen else (f"{_OTHER} ", "$foreground 60%")
        return Content.assemble(mark, (option.label.ljust(width), "bold" if chosen else ""))

    def action_move(self, by: int) -> None:
        """The one before or after, around the ends."""
        values = [option.value for option in self._options]
        self._choose(values[(values.index(self.value) + by) % len(values)])

    def on_click(self, event: events.Click) -> None:
        """A click chooses."""
        option = self._at(event.x, event.y)
        if option is not None:
            self._choose(option.value)

    def _at(self, x: int, y: int) -> Option | None:
        if not self._across:
            return self._options[y] if y < len(self._options) else None
        edge = self.gutter.left
        for option in self._options:
            edge += len(option.label) + len(_CHOSEN) + 1 + _APART
            if x < edge:
                return option
        return None

    def _choose(self, value: str) -> None:
        if value != self.value:
            self.value = value
            self.refresh()
            self.post_message(self.Chosen(self))
