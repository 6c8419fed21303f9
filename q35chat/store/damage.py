"""What of a stored chat is damaged, in the words of the line that its reader sees."""

from __future__ import annotations

_SHOWN_TITLE = 40


class Damage:
    """Collects what could not be read while a chat was. Nothing in the file is changed by it."""

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}

    def of(self, kind: str) -> None:
        """Something of this `kind`, a plural like `settings`, was not what was written."""
        self._kinds[kind] = None

    def line(self, title: str) -> str:
        """What the user should know, naming the chat; empty where all is whole."""
        if not self._kinds:
            return ""
        named = title if len(title) <= _SHOWN_TITLE else title[: _SHOWN_TITLE - 1] + "…"
        return (
            f"The chat {named!r} is damaged in the data folder: its {_listed(list(self._kinds))}. "
            "What can be read is shown; look it over before you go on, or begin a new chat."
        )


def _listed(words: list[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last
