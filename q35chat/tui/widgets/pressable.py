"""Words on the screen that name a key: a click on them is what the key is."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget

from q35chat.tui.commands import key_named
from q35chat.tui.sizes import SHORT
from q35chat.tui.text import packed

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


class Foot(Widget):
    """The last line of a dialog: `Enter opens · Esc closes`. It breaks between keys alone; where
    rows are few it stays one line, and what closes is on it in any case."""

    keys: reactive[tuple[str, ...]] = reactive((), layout=True)

    def __init__(self, text: str) -> None:
        super().__init__(classes="dialog-foot")
        self.say(text)

    def say(self, text: str) -> None:
        """Name other keys."""
        self.keys = tuple(text.split(_BETWEEN))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """As many lines as the keys take."""
        return len(self._lines(width))

    def render(self) -> Content:
        """The keys, each of which can be clicked."""
        return Content("\n").join(
            Content(_BETWEEN).join(
                pressable(Content(part), part.partition(" ")[0]) for part in line.split(_BETWEEN)
            )
            for line in self._lines(self.content_size.width)
        )

    def _lines(self, width: int) -> list[str]:
        *others, last = self.keys
        lines = packed(self.keys, width, _BETWEEN)
        while self.app.size.height < SHORT and others and len(lines) > 1:
            others.pop()
            lines = packed([*others, last], width, _BETWEEN)
        return lines

    def on_click(self, event: events.Click) -> None:
        """A click on a part presses its key."""
        press(self, event)
