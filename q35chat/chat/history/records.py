"""What is kept of a conversation, as values: a turn with its place in the tree, a search hit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from q35chat.chat.events import Usage
from q35chat.chat.values import ChatSettings, Turn


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
    """A turn that holds every searched word, with the text around the first of them."""

    session: str
    title: str
    turn: str
    role: str
    excerpt: str
    updated: float
