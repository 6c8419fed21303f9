"""Short messages in lines of their own above the composer: they push, and never cover anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from textual.content import Content
from textual.widgets import Static

from q35chat.tui.text import clean

Severity = Literal["information", "warning", "error"]
MOST: Final = 3
_SHORTEST_S: Final = 5.0
_CHARACTERS_PER_S: Final = 15
_SIGNS: Final[dict[Severity, tuple[str, str]]] = {
    "information": ("●", "$success"),
    "warning": ("▲", "$warning"),
    "error": ("✗", "$error"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What is said."""

    text: str
    severity: Severity
    about: str = ""


class Messages(Static):
    """The newest `MOST` messages, each as long as it takes to read; a click takes all away.

    Of those that only inform, and of those about the same, the newest replaces the one before.
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._said: list[Message] = []
        self._held = False
        self.display = False

    @property
    def said(self) -> list[Message]:
        """What is on screen, oldest first."""
        return list(self._said)

    def say(self, text: str, severity: Severity = "information", *, about: str = "") -> None:
        """Add a message; it goes away by itself, or with a newer one that is `about` the same."""
        message = Message(clean(text), severity, about)
        kept = [
            old
            for old in self._said
            if not (about and about == old.about)
            and old.severity != "information"
            and old.text != message.text
        ]
        self._put([*kept, message][-MOST:])

        def expire() -> None:
            if message in self._said:
                self._put([other for other in self._said if other is not message])

        self.set_timer(max(_SHORTEST_S, len(text) / _CHARACTERS_PER_S), expire)

    def go_on(self) -> None:
        """A turn begins: what was said before it goes, but for warnings."""
        if not self._held:
            self._put([message for message in self._said if message.severity == "warning"])

    @contextmanager
    def held(self) -> Iterator[None]:
        """While inside, a turn that begins takes nothing away: it follows from what was said."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def on_click(self) -> None:
        """Enough of it."""
        self._put([])

    def _put(self, said: list[Message]) -> None:
        self._said = said
        self.display = bool(said)
        lines = []
        for message in said:
            sign, colour = _SIGNS[message.severity]
            lines.append(Content.assemble((f"{sign} ", f"{colour} bold"), (message.text, colour)))
        self.update(Content("\n").join(lines))
