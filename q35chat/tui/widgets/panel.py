"""A panel above the composer: what happened, why, and the ways on, one key each."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from q35chat.tui.commands import PANEL_KEYS, key_label
from q35chat.tui.text import clean

Tone = Literal["error", "warning", "note"]
SIGNS: dict[Tone, str] = {"error": "✗", "warning": "▲", "note": "●"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way on: its label and what it does."""

    label: str
    run: Callable[[], Awaitable[None] | None]

    async def take(self) -> None:
        """Do it, and wait for what takes time."""
        result = self.run()
        if inspect.isawaitable(result):
            await result


class WayLine(Horizontal):
    """A way on that can be clicked: its key, and beside it what it does."""

    def __init__(self, index: int, label: str) -> None:
        super().__init__(classes="way")
        self._index = index
        self._label = label

    def compose(self) -> ComposeResult:
        """The label wraps in a column of its own."""
        key = key_label(PANEL_KEYS[self._index])
        yield Static(Content.styled(f" {key} ", "reverse bold"), classes="way-key")
        yield Static(Content(clean(self._label)), classes="way-label")

    def on_click(self) -> None:
        """A click is what the key is."""
        self.screen.call_later(self.screen.run_action, f"choose({self._index})")


class Panel(Vertical):
    """At most one at a time, hidden until something happens; stays until a way is chosen or Esc."""

    def __init__(self) -> None:
        super().__init__(id="panel")
        self.ways: tuple[Way, ...] = ()
        self.display = False

    def compose(self) -> ComposeResult:
        """Title and message; the ways are mounted when shown."""
        yield Static(id="panel-title", markup=False)
        yield Static(id="panel-text", markup=False)
        yield Vertical(id="panel-ways")

    async def show(self, tone: Tone, title: str, text: str, ways: tuple[Way, ...]) -> None:
        """Say it and offer the ways on."""
        self.ways = ways
        self.set_classes(f"-{tone}")
        self.query_one("#panel-title", Static).update(Content(f"{SIGNS[tone]} {clean(title)}"))
        body = self.query_one("#panel-text", Static)
        body.update(Content(clean(text)))
        body.display = bool(text)
        box = self.query_one("#panel-ways")
        await box.remove_children()
        await box.mount_all([WayLine(index, way.label) for index, way in enumerate(ways)])
        self.display = True

    def dismiss(self) -> None:
        """Take it away."""
        self.display = False
        self.ways = ()
