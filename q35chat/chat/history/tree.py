"""The turns of one conversation as a tree: branches side by side, one path being read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from q35chat.chat.history.records import TurnRecord


class TurnTree:
    """Turns by id. The first turn that was put under another goes on with its branch, each later
    one begins a branch. One whose parent was not put before it has none, and one that takes the
    place of another keeps that one's, so that no path is without end. Never changes: whoever reads
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
        """The turns from the first one to `head`; none where that is not there."""
        found: list[TurnRecord] = []
        while head in self._records:
            record = self._records[head]
            found.append(record)
            head = record.parent
        return tuple(reversed(found))

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The last turns of all branches, in the order in which the branches were begun."""
        return tuple(self.end_of(ident) for ident in self._records if self._begins(ident))

    def end_of(self, ident: str) -> str:
        """The last turn of the branch that this turn was put on."""
        while children := self._children.get(ident):
            ident = children[0]
        return ident

    def _begins(self, ident: str) -> bool:
        parent = self._records[ident].parent
        return parent is None or self._children[parent][0] != ident

    def _put(self, record: TurnRecord) -> None:
        known = self._records.get(record.id)
        parent = record.parent if known is None else known.parent
        if known is None:
            parent = parent if parent in self._records else None
            self._children[parent] = (*self._children.get(parent, ()), record.id)
        if parent != record.parent:
            record = replace(record, parent=parent)
        self._records[record.id] = record
