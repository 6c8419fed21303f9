"""What conversations ask of whoever keeps them. Every call is short and safe in any thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.service import SessionSummary
from q35chat.errors import StoreError


class StoreBusyError(StoreError):
    """Somebody else writes just now, and the call was not to wait."""


class Archive(Protocol):
    """Conversations and their turns, shared with other processes. All calls raise StoreError."""

    @property
    def message(self) -> str:
        """What the user should know about it, if anything."""

    def create(self, record: ConversationRecord, turns: Sequence[TurnRecord]) -> None:
        """Add a conversation with its first turns."""

    def save(
        self,
        record: ConversationRecord,
        turns: Sequence[TurnRecord],
        *,
        since: ConversationRecord | None = None,
        wait: bool = True,
    ) -> int:
        """Write a known conversation and the turns that changed; its new revision.

        Of the conversation what changed `since` it was read or written last, else all. Where it is
        not to `wait` for others that write it raises StoreBusyError.
        """

    def record(self, session: str) -> ConversationRecord:
        """A conversation without its turns."""

    def load(self, session: str) -> tuple[ConversationRecord, tuple[TurnRecord, ...]]:
        """A conversation and all its turns, parents first."""

    def resolve(self, name: str) -> str:
        """The id that begins with `name`."""

    def latest(self) -> str:
        """The id of the latest conversation; refused when there is none."""

    def sessions(self, query: str = "") -> Sequence[SessionSummary]:
        """Conversations, latest first; with a query those that hold all its words."""

    def index(self) -> None:
        """Bring the search index up to date."""

    def rename(self, session: str, title: str) -> None:
        """Give a conversation another title."""

    def delete(self, session: str) -> None:
        """Delete a conversation for good."""

    def answering(self, session: str) -> AbstractContextManager[None]:
        """Hold a conversation while an answer is written; refused while it is held."""

    def export_markdown(self, session: str, folder: Path) -> Path:
        """Write the branch being read as Markdown with its pictures beside it."""
