"""One conversation in memory and on disk: its tree of turns, written before it is shown.

Knows the store and nothing of the model. Readers never wait for the disk: they see a record and a
tree that are only ever replaced. What could not be written stays in memory and is tried again
with the next write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from q35chat.chat.history.records import Archive, ConversationRecord, StoreBusyError, TurnRecord
from q35chat.chat.history.tree import ConversationView, TurnTree, merged
from q35chat.chat.text_files import split_files
from q35chat.chat.values import ChatSettings
from q35chat.chat.worker import Worker
from q35chat.errors import StoreError, UsageError
from q35chat.text import now

TITLE_LENGTH = 60
UNTITLED = "New chat"

_Change = Callable[[ConversationRecord], ConversationRecord]

_log = logging.getLogger(__name__)


class Journal:
    """The turns of a conversation, in memory alone where there is no `store`. Safe to use from any
    thread."""

    def __init__(
        self,
        store: Archive | None,
        record: ConversationRecord,
        turns: Sequence[TurnRecord] = (),
        stored: bool = False,
    ) -> None:
        self._store = store
        self._view = ConversationView(record, TurnTree(turns))
        self._stored = stored
        self._base = record  # as it was read or written last: what differs is this process's own
        self._unwritten: dict[str, TurnRecord] = {}
        self._growing: str | None = None
        self._news: tuple[str, ...] = ()
        self._memory = threading.Lock()  # held while memory is changed, never for the disk
        self._writer = threading.Lock()  # held while the disk is waited for
        self._later = Worker()

    @property
    def record(self) -> ConversationRecord:
        """The conversation itself."""
        return self._view.record

    @property
    def view(self) -> ConversationView:
        """All of it at one moment, for who reads more than one thing."""
        return self._view

    @property
    def is_kept(self) -> bool:
        """Whether it is written to a store."""
        return self._store is not None

    def forgo_store(self) -> None:
        """Keep all from now on in memory alone."""
        with self._writer:
            self._store = None

    def answering(self) -> AbstractContextManager[None]:
        """Hold the conversation while an answer is written. Raises StoreError if it is held."""
        return nullcontext() if self._store is None else self._store.answering(self.record.id)

    def is_stored(self) -> bool:
        """Whether the store has the conversation, and nobody deleted it meanwhile."""
        with suppress(StoreError):
            return self._store is not None and bool(self._store.record(self.record.id))
        return False

    def known(self, ident: str) -> TurnRecord:
        """The turn with this id. Raises UsageError if there is none."""
        tree = self._view.tree
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
            self._write()

    def stream(self, turn: TurnRecord) -> None:
        """Write a turn that is still growing and is not part of the tree yet."""
        with self._writer:
            self._write(lambda record: _going_on(record, turn), (turn,))
            self._growing = turn.id

    def begin(self, title: str, settings: ChatSettings, summary: str) -> None:
        """Store the conversation before anything is said in it. Raises StoreError."""
        told: dict[str, Any] = {"title": title, "settings": settings, "summary": summary}
        with self._writer:
            self._write(lambda record: replace(record, **told))
            with self._memory:
                self._set(**told)

    def refresh(self) -> None:
        """Take over what another process wrote. Raises StoreError if it was deleted."""
        with self._writer:
            ident, base = self.record.id, self._base
            if self._store is None or not self._stored or self._growing is not None:
                return
            if self._store.record(ident).revision == base.revision:
                return
            stored, turns = self._store.load(ident)
            with self._memory:
                owed = self._unwritten.values()
                self._view, news = merged(self._view, base, stored, turns, owed)
                self._base = stored
                self._news = tuple(dict.fromkeys((*self._news, *news)))

    def news(self) -> str:
        """What the user should know of what `refresh` took over, once; then empty."""
        if not self._news:
            return ""
        with self._memory:
            news, self._news = self._news, ()
        return " ".join(news)

    def flush(self) -> str:
        """Write what is not written yet: this may be the last time. Why that failed, or empty."""
        self._later.wait()
        return self._write_owed()

    # -- for whoever shows: these wait for nobody

    def replace(self, turns: Sequence[TurnRecord]) -> None:
        """Change known turns, written now or, where others write, a little later. Raises
        StoreError, and then nothing has changed."""
        with self._memory:
            tree, owed = self._view.tree, dict(self._unwritten)
            self._view = replace(self._view, tree=tree.having(turns))
            self._unwritten.update({turn.id: turn for turn in turns})
        try:
            self._write_at_once()
        except StoreError:
            if self._take_back(turns, tree, owed):
                raise

    def read_to(self, head: str) -> None:
        """Read the branch that ends with the turn `head`, written now or, where others write, a
        little later. Raises StoreError, and then nothing has changed."""
        with self._memory:
            before = self._view.record.head
            self._set(head=head)
        try:
            self._write_at_once()
        except StoreError:
            with self._memory:
                if self._base.head == head:
                    return
                if self._view.record.head == head:
                    self._set(head=before)
            raise

    def change_settings(self, settings: ChatSettings) -> None:
        """Use other settings from the next turn on, written now or, where others write, a little
        later. Raises StoreError if they are not saved."""
        with self._memory:
            self._set(settings=settings)
        self._write_at_once()

    def retitle(self, title: str) -> None:
        """Show a title that the store already has."""
        with self._memory:
            self._set(title=title)

    # -- what all of them are made of

    def _show(self, turn: TurnRecord, *, owed: bool = False) -> None:
        """Go on from a turn, which is still to be written if it is `owed`."""
        with self._memory:
            record, tree = self._view.record, self._view.tree
            self._view = ConversationView(_going_on(record, turn), tree.having((turn,)))
            self._growing = None
            if owed:
                self._unwritten[turn.id] = turn

    def _set(self, **changes: Any) -> None:
        """Change fields of the record that is shown. The caller holds the memory."""
        self._view = replace(self._view, record=replace(self._view.record, **changes))

    def _take_back(
        self, turns: Sequence[TurnRecord], tree: TurnTree, owed: dict[str, TurnRecord]
    ) -> bool:
        """Put those of `turns` that nobody has written back as they were in `tree`, and owe what
        was `owed` of them. Whether there are any."""
        with self._memory:
            ours = [turn.id for turn in turns if self._unwritten.get(turn.id) is turn]
            former = [tree[ident] for ident in ours]
            self._view = replace(self._view, tree=self._view.tree.having(former))
            for ident in ours:
                del self._unwritten[ident]
                if ident in owed:
                    self._unwritten[ident] = owed[ident]
        return bool(ours)

    def _write_at_once(self) -> None:
        """Write what is owed where nobody else writes, else in the background."""
        if not self._stored:
            return
        if not self._writer.acquire(blocking=False):
            self._later.soon(self._write_later)
            return
        try:
            self._write(wait=False)
        except StoreBusyError:
            self._later.soon(self._write_later)
        finally:
            self._writer.release()

    def _write_later(self, _: threading.Event) -> None:
        if problem := self._write_owed():
            _log.warning("chat %s is not written yet: %s", self.record.id, problem)

    def _write_owed(self) -> str:
        with self._writer:
            try:
                if self._stored and self._owes():
                    self._write()
            except StoreError as error:
                return str(error)
        return ""

    def _write(
        self,
        change: _Change = lambda same: same,
        turns: Sequence[TurnRecord] = (),
        *,
        wait: bool = True,
    ) -> None:
        """Write the record under `change`, `turns`, and what is owed. The caller is the writer."""
        with self._memory:
            record, base = self._view.record, self._base
            record = replace(record, head=self._growing or record.head, updated=now())
            record = replace(change(record), revision=base.revision)
            written = {**self._unwritten, **{turn.id: turn for turn in turns}}
        if self._store is None:
            pass
        elif self._stored:
            revision = self._store.save(record, tuple(written.values()), since=base, wait=wait)
            if revision == base.revision + 1:
                record = replace(record, revision=revision)
        else:
            self._store.create(record, tuple(written.values()))
            self._stored = True
        with self._memory:
            self._base = record
            for ident, turn in written.items():
                if self._unwritten.get(ident) is turn:
                    del self._unwritten[ident]

    def _owes(self) -> bool:
        """Whether anything differs from what was written last. The caller is the writer."""
        with self._memory:
            record, base = self._view.record, self._base
            moved = (self._growing or record.head) != base.head
            return bool(self._unwritten) or moved or record.settings != base.settings


def _going_on(record: ConversationRecord, turn: TurnRecord) -> ConversationRecord:
    untold = record.title == UNTITLED and record.head is None and turn.turn.role == "user"
    return replace(record, head=turn.id, title=title_of(turn) if untold else record.title)


def title_of(turn: TurnRecord) -> str:
    """The first words of a question, on one line."""
    files, asked = split_files(turn.turn.text)
    named = ", ".join(file.name for file in files)
    line = " ".join(asked.split()) or named or "Picture"
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def untitled(ident: str, settings: ChatSettings) -> ConversationRecord:
    """A conversation in which nothing was said."""
    begun = now()
    return ConversationRecord(ident, UNTITLED, begun, begun, None, settings)
