"""Keys that come before the list they are for: what they mean waits until that list is there.

A list is made for a text in a worker, while the list of an earlier text is still on screen. Knows
no widget and no list, only which text the newest one is for.
"""

from __future__ import annotations

from collections.abc import Callable


class Arriving:
    """What is asked of a worker for a text, and what waits for the answer."""

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
