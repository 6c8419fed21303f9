"""The conversation that a command's turn belongs to, if it is kept at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from q35chat.chat.conversation import StoredConversation
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import StoredWorkspace
from q35chat.commands.backend import LoadedModel
from q35chat.commands.checks import check_session
from q35chat.commands.console import Console
from q35chat.errors import StoreError, UsageError
from q35chat.store import Store


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where a turn is kept: a store, or None; and the conversation it goes on in, or None."""

    store: Store | None = None
    session: str | None = None

    def conversation(self, model: LoadedModel, fresh: ChatSettings) -> StoredConversation | None:
        """The conversation with its own settings, a new one with `fresh`; None if not kept."""
        if self.store is None:
            return None
        workspace = StoredWorkspace(self.store, lambda: (model.backend, fresh), reads_ahead=False)
        workspace.load()
        return workspace.pick(self.session)

    @property
    def damage(self) -> str:
        """What is wrong with the conversation that it goes on in, or empty."""
        return self.store.damaged_chat if self.store is not None else ""


def keeping(
    console: Console, session: str | None = None, *, latest: bool = False, keep: bool = True
) -> Keeping:
    """Where the turn is kept. Needs no model.

    A new turn is answered without being kept where the store cannot be opened, and a note says
    so. Raises StoreError where a conversation was asked for and is not there, UsageError where
    the options contradict each other.
    """
    wanted = session is not None or latest
    check_session(session, latest=latest)
    if not keep:
        if wanted:
            raise UsageError("--no-save keeps nothing; leave out --continue and --session or it")
        return Keeping()
    try:
        store = Store()
    except StoreError as error:
        if wanted:
            raise
        console.note(f"this answer is not kept: {error}")
        return Keeping()
    if store.message:
        console.note(store.message)
    if session is not None:
        return Keeping(store, store.resolve(session))
    return Keeping(store, store.latest() if latest else None)


def after_one_turn(before: ChatSettings, used: ChatSettings) -> ChatSettings:
    """What a conversation keeps of the options of one turn: system prompt, thinking, its budget."""
    kept = before.with_thinking(used.thinking, used.thinking_budget)
    return replace(kept, system_prompt=used.system_prompt)
