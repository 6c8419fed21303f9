"""Words on the screen that name a key: a click on them is what the key is."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from q35chat.tui.commands import key_named

_KEY = "key"
_BETWEEN = " · "


def pressable(words: Content, label: str) -> Content:
    """`words` that press the key whose label this is; as they are where that names no key."""
    key = key_named(label)
    return words.stylize(Style.from_meta({_KEY: key})) if key else words


def press(widget: Widget, event: events.Click) -> None:
    """Press the key that was clicked on, if one was."""
    key = event.style.meta.get(_KEY)
    if key is not None:
        event.stop()
        widget.app.simulate_key(key)


class Foot(Static):
    """The last line of a dialog: `Enter opens · Esc closes`."""

    def __init__(self, text: str) -> None:
        super().__init__(_pressable_parts(text), classes="dialog-foot")

    def say(self, text: str) -> None:
        """Name other keys."""
        self.update(_pressable_parts(text))

    def on_click(self, event: events.Click) -> None:
        """A click on a part presses its key."""
        press(self, event)


def _pressable_parts(text: str) -> Content:
    parts = [pressable(Content(part), part.partition(" ")[0]) for part in text.split(_BETWEEN)]
    return Content(_BETWEEN).join(parts)
