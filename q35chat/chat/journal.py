"""One conversation in memory and on disk: its tree of turns, written before it is shown.

Knows the store and nothing of the model. Turns that could not be written stay in memory and
are tried again with the next write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from q35chat.chat.archive import Archive
from q35chat.chat.records import ConversationRecord, TurnRecord
from q35chat.chat.tree import TurnTree
from q35chat.chat.values import ChatSettings
from q35chat.errors import UsageError

TITLE_LENGTH = 60
UNTITLED = "New chat"


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
        self._record = record
        self._tree = TurnTree(turns)
        self._stored = stored
        self._revision = record.revision
        self._unwritten: dict[str, TurnRecord] = {}
        self._lock = threading.RLock()

    @property
    def record(self) -> ConversationRecord:
        """The conversation itself."""
        return self._record

    def path(self) -> tuple[TurnRecord, ...]:
        """The turns of the branch being read."""
        with self._lock:
            return self._tree.path(self._record.head)

    def path_to(self, ident: str | None) -> tuple[TurnRecord, ...]:
        """The turns that lead to `ident`, which is the last of them."""
        with self._lock:
            return self._tree.path(ident)

    def siblings(self, ident: str) -> Sequence[str]:
        """The branches that this turn is one of."""
        with self._lock:
            return self._tree.siblings(ident)

    def newest_below(self, ident: str) -> str:
        """The end of the newest branch under this turn."""
        with self._lock:
            return self._tree.latest_below(ident)

    def known(self, ident: str) -> TurnRecord:
        """The turn with this id. Raises UsageError if there is none."""
        with self._lock:
            if ident not in self._tree:
                raise UsageError(f"This chat has no turn {ident!r}.")
            return self._tree[ident]

    def add(self, turn: TurnRecord) -> None:
        """Write a turn and go on from it. Raises StoreError, and then nothing has changed."""
        with self._lock:
            self._write(self._going_on_from(turn), (turn,))
            self._tree.put(turn)

    def keep(self, turn: TurnRecord) -> None:
        """`add`, but the turn stays in memory also when it cannot be written (StoreError)."""
        with self._lock:
            self._tree.put(turn)
            self._unwritten[turn.id] = turn
            self._record = self._going_on_from(turn)
            self._write(self._record, ())

    def stream(self, turn: TurnRecord) -> None:
        """Write a turn that is still growing and is not part of the tree yet."""
        with self._lock:
            self._write(self._going_on_from(turn), (turn,), remember=False)

    def replace(self, turns: Sequence[TurnRecord], head: str | None) -> None:
        """Write changed turns and the branch being read. Raises StoreError."""
        with self._lock:
            self._write(replace(self._record, head=head), turns)
            for turn in turns:
                self._tree.put(turn)

    def begin(self, title: str, settings: ChatSettings, summary: str) -> None:
        """Store the conversation before anything is said in it. Raises StoreError."""
        with self._lock:
            self._write(replace(self._record, title=title, settings=settings, summary=summary), ())

    def change_settings(self, settings: ChatSettings) -> None:
        """Use other settings from the next turn on. Raises StoreError if they are not saved."""
        with self._lock:
            self._record = replace(self._record, settings=settings)
            if self._stored:
                self._write(self._record, ())

    def retitle(self, title: str) -> None:
        """Show a title that the store already has."""
        with self._lock:
            self._record = replace(self._record, title=title)

    def refresh(self) -> None:
        """Take over what another process wrote. Raises StoreError if it was deleted."""
        with self._lock:
            if not self._stored or self.store.record(self._record.id).revision == self._revision:
                return
            record, turns = self.store.load(self._record.id)
            head = self._record.head
            self._tree = TurnTree((*turns, *self._unwritten.values()))
            self._revision = record.revision
            self._record = replace(
                self._record, title=record.title, head=head if head in self._tree else record.head
            )

    def _going_on_from(self, turn: TurnRecord) -> ConversationRecord:
        title = self._record.title
        if self._record.head is None and turn.turn.role == "user":
            title = title_of(turn) if title == UNTITLED else title
        return replace(self._record, head=turn.id, title=title)

    def _write(
        self, record: ConversationRecord, turns: Sequence[TurnRecord], remember: bool = True
    ) -> None:
        record = replace(record, updated=time.time())
        changed = tuple({**self._unwritten, **{turn.id: turn for turn in turns}}.values())
        if self._stored:
            if self.store.save(record, changed) == self._revision + 1:
                self._revision += 1
        else:
            self.store.create(record, changed)
            self._stored = True
        self._unwritten.clear()
        if remember:
            self._record = record


def title_of(turn: TurnRecord) -> str:
    """The first words of a question, on one line."""
    line = " ".join(turn.turn.text.split()) or "Picture"
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def untitled(ident: str, settings: ChatSettings) -> ConversationRecord:
    """A conversation in which nothing was said."""
    now = time.time()
    return ConversationRecord(ident, UNTITLED, now, now, None, settings)
