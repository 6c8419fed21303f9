"""The conversation store: what the chat, the screens and the commands ask of it.

All calls are short transactions and may come from any thread; several processes may have the
same folder open. One process at a time answers in a conversation (`answering`).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from q35chat.chat.history.records import (
    ConversationRecord,
    SearchHit,
    StoreWriteError,
    TurnRecord,
)
from q35chat.chat.service import ListedConversation
from q35chat.chat.values import Attachment
from q35chat.errors import StoreError
from q35chat.files import locked
from q35chat.processes import program
from q35chat.states.listing import (
    ANYBODY,
    drop_states,
    owner_name,
    remove_state,
    stored_states,
)
from q35chat.store import export, importing, rows, search
from q35chat.store.columns import Losses
from q35chat.store.folder import (
    PictureFiles,
    data_folder,
    exclusive,
    private_folder,
    states_folder,
)
from q35chat.store.opening import NAME, open_database, open_to_read

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""An id that is the name of a file, and of no other place."""


class Store:
    """Conversations, turns and pictures in one private folder. `damaged_chat` says what is wrong
    with the chat that was loaded last, or is empty."""

    def __init__(self, folder: Path | None = None) -> None:
        """Open or create the store. Raises StoreError (newer schema, no access).

        A file of many megabytes is checked while it is read already. One that cannot be written is
        read.
        """
        self.folder = folder or data_folder()
        self._locks = self.folder / "locks"
        self.pictures = PictureFiles(self.folder / "pictures")
        self.damaged_chat = ""
        try:
            for part in (self.folder, self._locks, self.folder / "pictures"):
                private_folder(part)
            self._database, self._set_aside = open_database(self.folder)
        except StoreWriteError as error:
            self._database = open_to_read(self.folder / NAME, error)
            self._set_aside = f"Chats can only be read: {error}"

    @property
    def message(self) -> str:
        """Not empty when a damaged file was set aside, or was found and will be, when nothing can
        be written, or where there is a `damaged_chat`."""
        return self._set_aside or self._database.damage or self.damaged_chat

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; further calls are errors."""
        self._database.close()

    def create(self, record: ConversationRecord, turns: Sequence[TurnRecord]) -> None:
        """Add a conversation with its first turns. Raises StoreError."""
        with self._database.writing() as connection:
            rows.insert_conversation(connection, record)
            for turn in turns:
                rows.write_turn(connection, record.id, turn, self.pictures)

    def save(
        self,
        record: ConversationRecord,
        turns: Sequence[TurnRecord],
        *,
        since: ConversationRecord | None = None,
        wait: bool = True,
    ) -> int:
        """Write a known conversation, all but its title, and the turns that changed.

        Of its head and settings only what changed `since` it was read or written last, where that
        is given: the rest may be another process's. Returns its new revision. Raises StoreError,
        also when it was deleted meanwhile; StoreBusyError where it is not to `wait` for others that
        write.
        """
        with self._database.writing(wait=wait) as connection:
            revision = rows.update_conversation(connection, record, since)
            if revision is None:
                raise StoreError(
                    f"The chat {record.title!r} was deleted by another q35chat. Start a new one."
                )
            for turn in turns:
                rows.write_turn(connection, record.id, turn, self.pictures)
        return revision

    def load(self, conversation_id: str) -> tuple[ConversationRecord, tuple[TurnRecord, ...]]:
        """A conversation and all its turns, parents first. Raises StoreError if unknown.

        Of one that is damaged what can be read; `message` says so.
        """
        damage = Losses()
        with self._database.reading() as connection:
            record = rows.read_conversation(connection, conversation_id, damage)
            if record is None:
                raise _unknown(conversation_id)
            turns = rows.read_turns(connection, conversation_id, self.pictures, damage)
        record = rows.with_head(record, turns, damage)
        self.damaged_chat = damage.line(record.title)
        return record, turns

    def record(self, conversation_id: str) -> ConversationRecord:
        """A conversation without its turns. Raises StoreError if unknown."""
        with self._database.reading() as connection:
            record = rows.read_conversation(connection, conversation_id, Losses())
        if record is None:
            raise _unknown(conversation_id)
        return record

    def resolve(self, name: str) -> str:
        """The id that begins with `name`. Raises StoreError when none or several do."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT id FROM conversations WHERE NOT trashed AND substr(id, 1, ?) = ? LIMIT 2",
                (len(name), name),
            ).fetchall()
        if len(found) > 1 and name:
            raise StoreError(f"Several chats begin with {name!r}. Give more of the id.")
        if not found or not name:
            raise _unknown(name)
        return str(found[0][0])

    def latest(self) -> str:
        """The id of the latest conversation. Raises StoreError when there is none."""
        with self._database.reading() as connection:
            ident = search.latest(connection)
        if ident is None:
            raise StoreError(f"There is no chat yet. `{program()} ask` begins one.")
        return ident

    def listed(self, query: str = "") -> list[ListedConversation]:
        """Conversations, latest first; with a query those that hold all its words."""
        with self._database.reading() as connection:
            wanted = search.matching(connection, query) if query.split() else None
            return search.listed(connection, wanted)

    def questions(self, most: int) -> list[str]:
        """At most so many questions of all chats, each once, the latest first."""
        with self._database.reading() as connection:
            return search.questions(connection, most)

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Turns that hold every word of `query`, those of the latest conversations first."""
        with self._database.reading() as connection:
            return search.find(connection, query, limit)

    def sweep(self) -> None:
        """Delete what was trashed, and remove what a killed process left and no row names:
        pictures, states, locks, and words in the log. Raises StoreError.

        Pictures stay while a file that was set aside may name them.
        """
        with self._database.reading() as connection:
            trashed = connection.execute("SELECT id FROM conversations WHERE trashed").fetchall()
        for (ident,) in trashed:
            self.delete(str(ident))
        with self._database.writing() as connection:  # while no other process can keep one
            for part in self.pictures.unfinished():
                part.unlink(missing_ok=True)
            if not any(self.folder.glob(f"{NAME}.damaged-*")):
                self._remove(rows.unshown(connection, tuple(self.pictures.hashes())))
            rows_of_ids = connection.execute("SELECT id FROM conversations")
            known = [str(ident) for (ident,) in rows_of_ids]
            names = {self._lock_file(ident).name for ident in known}
            for path in self._locks.iterdir():
                if path.name not in names:
                    with contextlib.suppress(OSError), locked(path, wait=False):
                        path.unlink()
            owners = {ANYBODY, *map(owner_name, known)}
            folder = states_folder(self.folder)
            for state in stored_states(folder):
                if state.name.owner not in owners:
                    remove_state(folder, state.name)
        self._database.empty_log()

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title. Raises StoreError if unknown."""
        self._change(conversation_id, "title", title)
        self._database.forget()

    def pin(self, conversation_id: str, pinned: bool) -> None:
        """Say whether a conversation stays in sight. Raises StoreError if unknown."""
        self._change(conversation_id, "pinned", int(pinned))

    def tag(self, conversation_id: str, tags: Sequence[str]) -> None:
        """Give a conversation these tags, words each, and no others. Raises StoreError if
        unknown."""
        self._change(conversation_id, "tags", " ".join(tags))
        self._database.forget()

    def trash(self, conversation_id: str) -> None:
        """Show a conversation no more. It can be brought back until the next `sweep`, which deletes
        it; `delete` does that at once. Raises StoreError, also while an answer is written in it."""
        self.record(conversation_id)
        with self.answering(conversation_id):
            self._change(conversation_id, "trashed", 1)

    def restore(self, conversation_id: str) -> None:
        """Bring back a conversation that was to be deleted. Raises StoreError if it is gone."""
        self._change(conversation_id, "trashed", 0)

    def _change(self, conversation_id: str, column: str, value: int | str) -> None:
        with self._database.writing() as connection:
            changed = connection.execute(
                f"UPDATE conversations SET {column} = ?, revision = revision + 1 "  # noqa: S608
                "WHERE id = ?",
                (value, conversation_id),
            )
            if changed.rowcount == 0:
                raise _unknown(conversation_id)

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation, its states and the pictures that no other one shows; nothing of
        its words stays in the file.

        Raises StoreError, also when the conversation is gone and a picture of it could not be
        deleted.
        """
        self.record(conversation_id)
        with self.answering(conversation_id), self._database.writing() as connection:
            shown = rows.shown_pictures(connection, conversation_id)
            connection.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
        drop_states(states_folder(self.folder), conversation_id)
        with contextlib.suppress(OSError):
            self._lock_file(conversation_id).unlink()
        self._database.forget()
        with self._database.writing() as connection:  # while no other process can keep one
            self._remove(rows.unshown(connection, shown))

    def _remove(self, pictures: Sequence[str]) -> None:
        failures: list[StoreError] = []
        for sha256 in pictures:
            try:
                self.pictures.remove(sha256)
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    @contextlib.contextmanager
    def answering(self, conversation_id: str) -> Iterator[None]:
        """Hold a conversation while an answer is written. Raises StoreError if it is held, or if
        nothing can be written."""
        busy = (
            "An answer is being written in this chat, perhaps by another q35chat. "
            "Wait for it or stop it, then try again."
        )
        self._database.check_writable()
        with exclusive(self._lock_file(conversation_id), busy):
            yield

    def markdown(self, conversation_id: str) -> str:
        """The branch being read, with pictures where the store keeps them. Raises StoreError."""
        return export.as_markdown(self.load(conversation_id), self._place)

    def json(self, conversation_id: str) -> str:
        """All of a conversation as JSON: branches, token ids, settings, timings."""
        return export.as_json(self.load(conversation_id), self._place)

    def export_markdown(self, conversation_id: str, folder: Path) -> Path:
        """Write the branch being read as Markdown, with its pictures beside it, in `folder`."""
        return export.write_markdown(self.load(conversation_id), folder)

    def export_json(self, conversation_id: str, target: Path) -> Path:
        """Write all of a conversation as JSON to the file, or into the folder, `target`."""
        return export.write_json(self.load(conversation_id), self._place, target)

    def import_chats(self, path: Path) -> tuple[list[ConversationRecord], int]:
        """Keep the chats of a file that an export wrote, here or in ChatGPT or LM Studio: those
        that are new, and how many were here already. Pictures come back where the store has them.

        Raises StoreError for a file that is no export.
        """
        fresh: list[ConversationRecord] = []
        chats = importing.read_export(path, self.pictures.read)
        for record, turns in chats:
            with self._database.reading() as connection:
                known = rows.read_conversation(connection, record.id, Losses())
            if known is None:
                self.create(record, turns)
                fresh.append(record)
        return fresh, len(chats) - len(fresh)

    def _place(self, picture: Attachment) -> str:
        return str(self.pictures.path(picture.sha256))

    def _lock_file(self, ident: str) -> Path:
        plain = _PLAIN.fullmatch(ident) is not None
        name = ident if plain else hashlib.sha256(ident.encode("utf-8", "replace")).hexdigest()
        return self._locks / f"{name}.lock"


def _unknown(conversation_id: str) -> StoreError:
    command = f"{program()} sessions list"
    return StoreError(f"There is no chat {conversation_id!r}. `{command}` shows their ids.")
