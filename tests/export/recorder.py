"""A reporter that remembers what it was told, in order."""

from __future__ import annotations


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.notes: list[str] = []
        self.written: dict[str, int] = {}
        self.totals: dict[str, int] = {}

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, component: str, total: int) -> None:
        self.events.append(f"begin {component}")
        self.totals[component] = total
        self.written[component] = 0

    def advance(self, component: str, count: int) -> None:
        self.events.append(f"advance {component}")
        self.written[component] += count

    def end(self, component: str) -> None:
        self.events.append(f"end {component}")
