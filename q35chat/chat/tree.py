"""The turns of one conversation as a tree: branches side by side, one path being read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from q35chat.chat.records import TurnRecord


class TurnTree:
    """Turns by id. A turn's children are its branches, oldest first. Never changes: whoever reads
    it waits for nobody."""

    def __init__(self, records: Iterable[TurnRecord] = ()) -> None:
        self._records: dict[str, TurnRecord] = {}
        self._children: dict[str | None, tuple[str, ...]] = {}
        for record in records:
            self._put(record)

    def __contains__(self, ident: object) -> bool:
        return ident in self._records

    def __getitem__(self, ident: str) -> TurnRecord:
        return self._records[ident]

    def having(self, records: Iterable[TurnRecord]) -> TurnTree:
        """This tree with more turns, each under its parent or in place of the one with its id."""
        tree = TurnTree()
        tree._records, tree._children = dict(self._records), dict(self._children)
        for record in records:
            tree._put(record)
        return tree

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
        return self._children[self._records[ident].parent]

    def latest_below(self, ident: str) -> str:
        """The end of the newest branch under this turn, or itself."""
        while children := self._children.get(ident):
            ident = children[-1]
        return ident

    def _put(self, record: TurnRecord) -> None:
        if record.id not in self._records:
            self._children[record.parent] = (*self._children.get(record.parent, ()), record.id)
        self._records[record.id] = record
