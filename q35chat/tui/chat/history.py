"""Earlier questions, walked with the arrow keys. Knows no widget."""

from __future__ import annotations

from collections.abc import Iterable


class History:
    """Sent texts, oldest first, and a place among them; the draft waits at the end."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)
        self._at = len(self._texts)
        self._draft = ""

    def add(self, text: str) -> None:
        """Remember a sent text and go back to the end."""
        if text and (not self._texts or self._texts[-1] != text):
            self._texts.append(text)
        self._at = len(self._texts)
        self._draft = ""

    @property
    def walking(self) -> bool:
        """Whether an earlier text is shown."""
        return self._at < len(self._texts)

    def shows(self, text: str) -> bool:
        """Whether `text` is the unchanged entry at this place."""
        return self.walking and self._texts[self._at] == text

    def earlier(self, current: str) -> str | None:
        """The text before this place, keeping `current` as the draft; None at the start."""
        if self._at == 0:
            return None
        if not self.walking:
            self._draft = current
        self._at -= 1
        return self._texts[self._at]

    def later(self) -> str | None:
        """The text after this place, the draft at last; None when already there."""
        if not self.walking:
            return None
        self._at += 1
        return self._texts[self._at] if self.walking else self._draft
