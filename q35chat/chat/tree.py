"""The turns of one conversation as a tree: branches side by side, one path being read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from q35chat.chat.records import TurnRecord


class TurnTree:
    """Turns by id. A turn's children are its branches, oldest first."""

    def __init__(self, records: Iterable[TurnRecord] = ()) -> None:
        self._records: dict[str, TurnRecord] = {}
        self._children: dict[str | None, list[str]] = {}
        for record in records:
            self.put(record)

    def __contains__(self, ident: object) -> bool:
        return ident in self._records

    def __getitem__(self, ident: str) -> TurnRecord:
        return self._records[ident]

    @property
    def records(self) -> Sequence[TurnRecord]:
        """All turns, parents before children."""
        return tuple(self._records.values())

    def put(self, record: TurnRecord) -> None:
        """Add a turn under its parent, or replace the one with its id."""
        if record.id not in self._records:
            self._children.setdefault(record.parent, []).append(record.id)
        self._records[record.id] = record

    def path(self, head: str | None) -> tuple[TurnRecord, ...]:
        """The turns from the first one to `head`."""
        found: list[TurnRecord] = []
        while head is not None:
            record = self._records[head]
            found.append(record)
            head = record.parent
        return tuple(reversed(found))

    def siblings(self, ident: str) -> Sequence[str]:
        """The branches that this turn is one of, itself included."""
        return tuple(self._children[self._records[ident].parent])

    def latest_below(self, ident: str) -> str:
        """The end of the newest branch under this turn, or itself."""
        while children := self._children.get(ident):
            ident = children[-1]
        return ident
