"""Fields whose keys all work in the order in which they were pressed.

Textual inserts a letter at once, but runs what another key is bound to only when the key has come
up to the application: of keys that come in one burst the letters would be first. Knows no screen.
"""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


async def run_in_order(field: Widget, event: events.Key) -> None:
    """Run what a key that is no text is bound to, before the next key is looked at."""
    if not event.is_printable and await field.app._check_bindings(event.key):
        event.stop()
        event.prevent_default()


class LineField(Input):
    """A field of one line."""

    async def _on_key(self, event: events.Key) -> None:
        await run_in_order(self, event)  # Textual goes on with what `Input` does with a key


class TextField(TextArea):
    """A field of several lines."""

    async def _on_key(self, event: events.Key) -> None:
        await run_in_order(self, event)
