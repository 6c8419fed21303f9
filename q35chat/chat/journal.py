"""One conversation in memory and on disk: its tree of turns, written before it is shown.

Knows the store and nothing of the model. Readers never wait for the disk: they see a record and a
tree that are only ever replaced. What could not be written stays in memory and is tried again
with the next write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from q35chat.chat.archive import Archive, StoreBusyError
from q35chat.chat.background import Background
from q35chat.chat.records import ConversationRecord, TurnRecord
from q35chat.chat.tree import TurnTree
from q35chat.chat.values import ChatSettings
from q35chat.errors import StoreError, UsageError

TITLE_LENGTH = 60
UNTITLED = "New chat"

_Change = Callable[[ConversationRecord], ConversationRecord]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What readers see at one moment."""

    record: ConversationRecord
    tree: TurnTree


class Journal:
    """The turns of a conversation. Safe to use from any thread."""

    def __init__(
        self,
        store: Archive,
        record: ConversationRecord,
        turns: Sequence[TurnRecord] = (),
        stored: bool = False,
    ) -> None:
        self.store = store
        self._shown = _Shown(record, TurnTree(turns))
        self._stored = stored
        self._revision = record.revision
        self._unwritten: dict[str, TurnRecord] = {}
        self._changes = self._written_changes = 0
        self._growing: str | None = None
        self._memory = threading.Lock()  # held while memory is changed, never for the disk
        self._writer = threading.Lock()  # held while the disk is waited for
        self._later = Background()

    @property
    def record(self) -> ConversationRecord:
        """The conversation itself."""
        return self._shown.record

    def path(self) -> tuple[TurnRecord, ...]:
        """The turns of the branch being read."""
        shown = self._shown
        return shown.tree.path(shown.record.head)

    def path_to(self, ident: str | None) -> tuple[TurnRecord, ...]:
        """The turns that lead to `ident`, which is the last of them."""
        return self._shown.tree.path(ident)

    def ends(self) -> tuple[str, ...]:
        """The last turns of all branches, in the order in which the branches were begun."""
        return self._shown.tree.ends

    def place(self, ident: str) -> tuple[int, int]:
        """The number (from 0) of the branch that this turn was put on, and how many there are."""
        tree = self._shown.tree
        return tree.ends.index(tree.end_of(ident)), len(tree.ends)

    def known(self, ident: str) -> TurnRecord:
        """The turn with this id. Raises UsageError if there is none."""
        tree = self._shown.tree
        if ident not in tree:
            raise UsageError(f"This chat has no turn {ident!r}.")
        return tree[ident]

    # -- for whoever computes: these wait for the disk

    def add(self, turn: TurnRecord) -> None:
        """Write a turn and go on from it. Raises StoreError, and then nothing has changed."""
        with self._writer:
            self._write(lambda record: _going_on(record, turn), (turn,))
            self._show(turn)

    def keep(self, turn: TurnRecord) -> None:
        """`add`, but the turn stays in memory also when it cannot be written (StoreError)."""
        with self._writer:
            self._show(turn, owed=True)
            self._write(_as_it_is)

    def stream(self, turn: TurnRecord) -> None:
        """Write a turn that is still growing and is not part of the tree yet."""
        with self._writer:
            self._write(lambda record: _going_on(record, turn), (turn,))
            self._growing = turn.id

    def begin(self, title: str, settings: ChatSettings, summary: str) -> None:
        """Store the conversation before anything is said in it. Raises StoreError."""

        def change(record: ConversationRecord) -> ConversationRecord:
            return replace(record, title=title, settings=settings, summary=summary)

        with self._writer:
            self._write(change)
            with self._memory:
                self._shown = replace(self._shown, record=change(self._shown.record))

    def refresh(self) -> None:
        """Take over what another process wrote. Raises StoreError if it was deleted."""
        with self._writer:
            ident = self.record.id
            if not self._stored or self.store.record(ident).revision == self._revision:
                return
            record, turns = self.store.load(ident)
            with self._memory:
                tree = TurnTree((*turns, *self._unwritten.values()))
                head = self.record.head if self.record.head in tree else record.head
                fresh = replace(self.record, title=record.title, head=head)
                self._shown = _Shown(fresh, tree)
                self._revision = record.revision

    def settle(self) -> str:
        """Write what is not written yet: this may be the last time. Why that failed, or empty."""
        self._later.wait()
        return self._write_owed()

    # -- for whoever shows: these wait for nobody

    def replace(self, turns: Sequence[TurnRecord], head: str | None) -> None:
        """Change turns and the branch being read, written now or, where others write, a little
        later. Raises StoreError, and then nothing has changed."""
        before = self._shown
        self._change(lambda record: replace(record, head=head), turns)
        try:
            self._write_at_once()
        except StoreError:
            with self._memory:
                self._shown = before
                for turn in turns:
                    self._unwritten.pop(turn.id, None)
            raise

    def change_settings(self, settings: ChatSettings) -> None:
        """Use other settings from the next turn on, written now or, where others write, a little
        later. Raises StoreError if they are not saved."""
        self._change(lambda record: replace(record, settings=settings))
        self._write_at_once()

    def retitle(self, title: str) -> None:
        """Show a title that the store already has."""
        with self._memory:
            self._shown = replace(self._shown, record=replace(self.record, title=title))

    # -- what all of them are made of

    def _show(self, turn: TurnRecord, *, owed: bool = False) -> None:
        """Go on from a turn, which is still to be written if it is `owed`."""
        with self._memory:
            record, tree = self._shown.record, self._shown.tree
            self._shown = _Shown(_going_on(record, turn), tree.having((turn,)))
            self._growing = None
            if owed:
                self._unwritten[turn.id] = turn

    def _change(self, change: _Change, turns: Sequence[TurnRecord] = ()) -> None:
        """Change what is shown; it is still to be written."""
        with self._memory:
            self._shown = _Shown(change(self._shown.record), self._shown.tree.having(turns))
            self._unwritten.update({turn.id: turn for turn in turns})
            self._changes += 1

    def _write_at_once(self) -> None:
        """Write what is owed where nobody else writes, else in the background."""
        if not self._stored:
            return
        if not self._writer.acquire(blocking=False):
            self._later.soon(self._write_later)
            return
        try:
            self._write(_as_it_is, wait=False)
        except StoreBusyError:
            self._later.soon(self._write_later)
        finally:
            self._writer.release()

    def _write_later(self) -> None:
        if problem := self._write_owed():
            _log.warning("chat %s is not written yet: %s", self.record.id, problem)

    def _write_owed(self) -> str:
        with self._writer:
            owes = self._unwritten or self._changes != self._written_changes
            try:
                if self._stored and owes:
                    self._write(_as_it_is)
            except StoreError as error:
                return str(error)
        return ""

    def _write(
        self, change: _Change, turns: Sequence[TurnRecord] = (), *, wait: bool = True
    ) -> None:
        """Write the record under `change`, `turns`, and what is owed. The caller is the writer."""
        with self._memory:
            record, changes = self._shown.record, self._changes
            record = replace(record, head=self._growing or record.head, updated=time.time())
            written = {**self._unwritten, **{turn.id: turn for turn in turns}}
        if self._stored:
            revision = self.store.save(change(record), tuple(written.values()), wait=wait)
            if revision == self._revision + 1:
                self._revision = revision
        else:
            self.store.create(change(record), tuple(written.values()))
            self._stored = True
        with self._memory:
            self._written_changes = changes
            for ident, turn in written.items():
                if self._unwritten.get(ident) is turn:
                    del self._unwritten[ident]


def _as_it_is(record: ConversationRecord) -> ConversationRecord:
    return record


def _going_on(record: ConversationRecord, turn: TurnRecord) -> ConversationRecord:
    title = record.title
    if record.head is None and turn.turn.role == "user":
        title = title_of(turn) if title == UNTITLED else title
    return replace(record, head=turn.id, title=title)


def title_of(turn: TurnRecord) -> str:
    """The first words of a question, on one line."""
    line = " ".join(turn.turn.text.split()) or "Picture"
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def untitled(ident: str, settings: ChatSettings) -> ConversationRecord:
    """A conversation in which nothing was said."""
    now = time.time()
    return ConversationRecord(ident, UNTITLED, now, now, None, settings)
