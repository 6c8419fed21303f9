"""What is kept of a conversation, as values, and what is asked of whoever keeps it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from q35chat.chat.events import Usage
from q35chat.chat.service import ListedConversation
from q35chat.chat.values import ChatSettings, Turn
from q35chat.errors import StoreError


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn in the tree. Turns with one `parent` are branches, oldest first.

    `tokenizer` names the vocabulary that `turn.token_ids` belong to; `left_out` turns stay
    readable but are no longer part of the prompt. `created` is in seconds since the epoch.
    """

    id: str
    parent: str | None
    turn: Turn
    created: float
    model: str = ""
    tokenizer: str = ""
    settings: ChatSettings | None = None
    usage: Usage | None = None
    note: str = ""
    left_out: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether it is an answer that nothing has ended."""
        return self.turn.role == "assistant" and self.turn.finish is None


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A conversation without its turns. `head` is the last turn of the branch being read.

    `summary` is what was said before, where it goes on from another conversation.
    """

    id: str
    title: str
    created: float
    updated: float
    head: str | None
    settings: ChatSettings
    revision: int = 0
    summary: str = ""

    @property
    def prompt_settings(self) -> ChatSettings:
        """The settings with the summary in the system prompt."""
        return self.settings.with_summary(self.summary)

    def on(self, stored: ConversationRecord, since: ConversationRecord) -> ConversationRecord:
        """What `stored` becomes by the changes that led from `since` to this one: of head and
        settings what was not changed here stays as another process left it."""
        return replace(
            stored,
            updated=self.updated,
            head=stored.head if self.head == since.head else self.head,
            settings=stored.settings.with_changes(since.settings, self.settings),
        )


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A turn that holds every searched word, with the text around the first of them. `session` is
    the id of its conversation, by the name that its JSON has."""

    session: str
    title: str
    turn: str
    role: str
    excerpt: str
    updated: float


class StoreWriteError(StoreError):
    """Nothing can be written: no space, no permission, or another one writes for too long."""


class StoreBusyError(StoreWriteError):
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

    def record(self, conversation_id: str) -> ConversationRecord:
        """A conversation without its turns."""

    def load(self, conversation_id: str) -> tuple[ConversationRecord, tuple[TurnRecord, ...]]:
        """A conversation and all its turns, parents first."""

    def resolve(self, name: str) -> str:
        """The id that begins with `name`."""

    def latest(self) -> str:
        """The id of the latest conversation; refused when there is none."""

    def listed(self, query: str = "") -> Sequence[ListedConversation]:
        """Conversations, latest first; with a query those that hold all its words."""

    def questions(self, most: int) -> Sequence[str]:
        """At most so many questions of all chats, each once, the latest first."""

    def sweep(self) -> None:
        """Remove the files that a killed process left."""

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title."""

    def pin(self, conversation_id: str, pinned: bool) -> None:
        """Say whether a conversation stays in sight."""

    def tag(self, conversation_id: str, tags: Sequence[str]) -> None:
        """Give a conversation these tags and no others."""

    def trash(self, conversation_id: str) -> None:
        """Show a conversation no more, and delete it at the next start."""

    def restore(self, conversation_id: str) -> None:
        """Bring back a conversation that was to be deleted."""

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation for good."""

    def answering(self, conversation_id: str) -> AbstractContextManager[None]:
        """Hold a conversation while an answer is written; refused while it is held."""

    def export_markdown(self, conversation_id: str, folder: Path) -> Path:
        """Write the branch being read as Markdown with its pictures beside it."""


def new_id() -> str:
    """A name that no other turn or conversation has."""
    return secrets.token_hex(8)
