"""What readers see of a conversation at one moment, and how two processes' work becomes one.

Values and pure functions; knows neither the store nor who writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.history.tree import TurnTree

OTHER_TURNS = "Another q35chat went on elsewhere in this chat: its turns are another version."
OTHER_SETTINGS = "Another q35chat changed the settings of this chat: they hold from now on."


@dataclass(frozen=True, slots=True)
class Shown:
    """A conversation and its turns, both of the same moment."""

    record: ConversationRecord
    tree: TurnTree

    def path(self) -> tuple[TurnRecord, ...]:
        """The turns of the branch being read."""
        return self.tree.path(self.record.head)

    def place(self) -> tuple[int, int]:
        """The number (from 0) of the branch being read, and how many there are; some turn has
        to be there."""
        head, ends = self.record.head, self.tree.ends
        return (0 if head is None else ends.index(self.tree.end_of(head))), len(ends)


def taken_over(
    ours: Shown,
    since: ConversationRecord,
    stored: ConversationRecord,
    turns: Sequence[TurnRecord],
    unwritten: Iterable[TurnRecord],
) -> tuple[Shown, list[str]]:
    """`ours` with what another process stored, and what the user should know of that.

    `since` is what was stored when it was looked at last. Settings that were not changed here are
    the stored ones. The branch being read goes on where another process went on with it; where it
    went on elsewhere, its turns stay beside this branch.
    """
    tree = TurnTree((*turns, *unwritten))
    head = _head(ours, stored.head, tree)
    settings = stored.settings.with_changes(since.settings, ours.record.settings)
    record = replace(ours.record, title=stored.title, head=head, settings=settings)
    fresh = Shown(record, tree)
    said: list[str] = []
    if head != stored.head and not _fresh_turns(ours, turns) <= {turn.id for turn in fresh.path()}:
        said.append(OTHER_TURNS)
    if settings != ours.record.settings:
        said.append(OTHER_SETTINGS)
    return fresh, said


def _head(ours: Shown, stored: str | None, tree: TurnTree) -> str | None:
    head = ours.record.head
    if head is None or head not in tree:
        return stored
    if stored != head and any(turn.id == head for turn in tree.path(stored)):
        return stored
    ended_here = ours.tree.end_of(head) == head
    return tree.end_of(head) if ended_here else head


def _fresh_turns(ours: Shown, turns: Sequence[TurnRecord]) -> set[str]:
    return {turn.id for turn in turns if turn.id not in ours.tree}
