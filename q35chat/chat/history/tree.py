"""The turns of one conversation as a tree, and the one branch of it that is being read.

The branch as the prompt and the screen see it, and how two processes' work becomes one: values and
pure functions, which know neither the store nor who writes. A question that is left out takes its
answer with it, whichever branch of it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.service import Step
from q35chat.chat.values import Turn
from q35chat.errors import StoreError, UsageError
from q35chat.text import pluralise


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

    def walk(self) -> Iterator[tuple[TurnRecord, int]]:
        """All turns, each before what is under it, with the number of forks above it."""
        waiting = self._under(None, 0)
        while waiting:
            ident, forks = waiting.pop()
            yield self._records[ident], forks
            waiting += self._under(ident, forks)

    def _under(self, ident: str | None, forks: int) -> list[tuple[str, int]]:
        """What was put under a turn, the last one first; several are a fork more."""
        children = self._children.get(ident, ())
        return [(child, forks + (len(children) > 1)) for child in reversed(children)]

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


INTERRUPTED = "interrupted"


def in_prompt(path: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
    """The turns that are not left out."""
    return tuple(record for record, out in _left_out(path) if not out)


def steps_of(path: Sequence[TurnRecord]) -> tuple[Step, ...]:
    """The turns, without the number of the branch."""
    return tuple(
        Step(
            id=record.id,
            turn=record.turn,
            note=record.note or (INTERRUPTED if record.unfinished else ""),
            usage=record.usage,
            left_out=out,
            model=record.model,
        )
        for record, out in _left_out(path)
    )


def oldest(path: Sequence[TurnRecord], pairs: int) -> tuple[TurnRecord, ...]:
    """The first `pairs` questions with their answers. Raises UsageError: not so many."""
    starts = [place for place, record in enumerate(path) if record.turn.role == "user"]
    if not 0 < pairs <= len(starts):
        raise UsageError(
            f"{pluralise(pairs, 'question')} cannot be left out: the prompt has {len(starts)}."
        )
    return tuple(path[: (*starts, len(path))[pairs]])


def prompt_turns(path: Sequence[TurnRecord], vocabulary: str) -> tuple[Turn, ...]:
    """The turns for the model, without token ids of another vocabulary.

    Raises StoreError when the file of a picture is gone.
    """
    for picture in (picture for record in path for picture in record.turn.attachments):
        if not picture.data:
            raise StoreError(
                f"The picture {picture.name!r} of this chat is missing or damaged in the "
                "data folder. Edit that question and attach it again."
            )
    return tuple(
        record.turn if record.tokenizer == vocabulary else replace(record.turn, token_ids=())
        for record in path
    )


def ids_are_ours(record: TurnRecord, vocabulary: str) -> bool:
    """Whether the token ids of a turn, perhaps none, are all of its text in this vocabulary."""
    turn = record.turn
    if turn.token_ids:
        return record.tokenizer == vocabulary
    return not (turn.text or turn.reasoning)


def _left_out(path: Sequence[TurnRecord]) -> Iterator[tuple[TurnRecord, bool]]:
    out = False
    for record in path:
        out = record.left_out if record.turn.role == "user" else out
        yield record, out


OTHER_TURNS = "Another q35chat went on elsewhere in this chat: its turns are another version."
OTHER_SETTINGS = "Another q35chat changed the settings of this chat: they hold from now on."


@dataclass(frozen=True, slots=True)
class ConversationView:
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


def merged(
    ours: ConversationView,
    since: ConversationRecord,
    stored: ConversationRecord,
    turns: Sequence[TurnRecord],
    unwritten: Iterable[TurnRecord],
) -> tuple[ConversationView, list[str]]:
    """`ours` with what another process stored, and what the user should know of that.

    `since` is what was stored when it was looked at last. Settings that were not changed here are
    the stored ones. The branch being read goes on where another process went on with it; where it
    went on elsewhere, its turns stay beside this branch.
    """
    tree = TurnTree((*turns, *unwritten))
    head = _head(ours, stored.head, tree)
    settings = stored.settings.with_changes(since.settings, ours.record.settings)
    record = replace(ours.record, title=stored.title, head=head, settings=settings)
    fresh = ConversationView(record, tree)
    said: list[str] = []
    theirs = {turn.id for turn in turns if turn.id not in ours.tree}
    if head != stored.head and not theirs <= {turn.id for turn in fresh.path()}:
        said.append(OTHER_TURNS)
    if settings != ours.record.settings:
        said.append(OTHER_SETTINGS)
    return fresh, said


def _head(ours: ConversationView, stored: str | None, tree: TurnTree) -> str | None:
    head = ours.record.head
    if head is None or head not in tree:
        return stored
    if stored != head and any(turn.id == head for turn in tree.path(stored)):
        return stored
    ended_here = ours.tree.end_of(head) == head
    return tree.end_of(head) if ended_here else head
