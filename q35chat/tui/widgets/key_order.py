"""Keys that work in the order in which they were pressed. Knows no screen and no list.

Textual inserts a letter at once, but runs what another key is bound to only when the key has come
up to the application: of keys that come in one burst the letters would be first. And a list is
made for a text in a worker, while the list of an earlier text is still on screen: a key for the
list waits until the one that it means is there.
"""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.widget import Widget
from textual.widgets import Input, TextArea


async def run_in_order(field: Widget, event: events.Key) -> None:
    """Run what a key that is no text is bound to, before the next key is looked at."""
    if not event.is_printable and await _run(field, event.key):
        event.stop()
        event.prevent_default()


async def _run(field: Widget, key: str) -> bool:
    """Run what a key is bound to where the field is; whether it is. A screen that was opened
    meanwhile, perhaps not yet as a whole, is none of a key that was pressed before."""
    app = field.app
    if field.screen is app.screen:
        return await app._check_bindings(key)
    for namespace, bindings in field.screen._modal_binding_chain:
        for binding in bindings.key_to_bindings.get(key, ()):
            if not binding.priority and await app.run_action(binding.action, namespace):
                return True
    return False


class LineField(Input):
    """A field of one line."""

    async def _on_key(self, event: events.Key) -> None:
        await run_in_order(self, event)  # Textual goes on with what `Input` does with a key


class TextField(TextArea):
    """A field of several lines."""

    async def _on_key(self, event: events.Key) -> None:
        await run_in_order(self, event)


class LatestQuery:
    """The newest text that a worker is asked about, and what waits for its answer."""

    def __init__(self) -> None:
        self._newest = 0
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self._there = False
        self.asked: str | None = None

    def ask(self, text: str) -> int:
        """Begin to ask for `text`, the newest there is; the number of this question. What waits
        for another text waits no more."""
        self._newest += 1
        self.asked, self._there = text, False
        self._waiting = [(wanted, act) for wanted, act in self._waiting if wanted == text]
        return self._newest

    @property
    def newest(self) -> int:
        """The number of the newest question."""
        return self._newest

    @property
    def there(self) -> bool:
        """Whether its answer is on screen."""
        return self._there

    def is_newest(self, question: int) -> bool:
        """Whether nothing was asked after `question`."""
        return question == self._newest

    def arrived(self) -> None:
        """The newest answer is on screen: do what waited for it."""
        self._there = True
        while self._there and self._waiting:
            self._waiting.pop(0)[1]()

    def then(self, text: str, act: Callable[[], None]) -> None:
        """Act on the answer for `text`: at once where it is on screen or nothing is asked for,
        else when it arrives."""
        if self.asked is None or (self._there and self.asked == text):
            act()
        else:
            self._waiting.append((text, act))

    def drop(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()

    def forget(self) -> None:
        """Nothing is asked for any more; an answer on its way is not the newest."""
        self._newest += 1
        self.asked, self._there = None, False
        self.drop()
