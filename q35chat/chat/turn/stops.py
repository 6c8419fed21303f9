"""Stop strings in streamed text: what might be the start of one is held back."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Cuts a stream at the first stop string; `stopped` tells that it came."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of the stream so far that can no longer belong to a stop string."""
        if self.stopped:
            return ""
        self._held += text
        found = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._held) - self._longest_start())

    def flush(self) -> str:
        """What is still held when the stream ends; nothing after a stop."""
        held, self._held = self._held, ""
        return "" if self.stopped else held

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _longest_start(self) -> int:
        """Length of the longest end of the held text that starts a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
