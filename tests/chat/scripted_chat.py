"""Conversations with a scripted model over a real store, and what is often asked of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from q35chat.chat.backend import ChatBackend
from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event, Finished
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.store import Store
from tests.doubles.scripted_backend import ScriptedBackend

SETTINGS = ChatSettings(system_prompt="Be kind.")


def open_workspace(
    folder: Path,
    backend: ChatBackend,
    settings: ChatSettings = SETTINGS,
    *,
    reads_ahead: bool = True,
) -> Workspace:
    """The conversations in a store of which `folder` holds the data."""
    store = Store(folder / "data")
    workspace = Workspace(store, lambda: (backend, settings), reads_ahead=reads_ahead)
    workspace.load()
    return workspace


def store_of(workspace: Workspace) -> Store:
    assert isinstance(workspace.store, Store)
    return workspace.store


def finish(events: Iterator[Event]) -> Finished:
    *_, last = events
    assert isinstance(last, Finished)
    return last


def texts(chat: Conversation) -> list[str]:
    return [step.turn.text for step in chat.steps]


def assert_reopens_as_it_is(workspace: Workspace, chat: Conversation) -> None:
    with Store(store_of(workspace).folder) as store:
        other = Workspace(store, lambda: (ScriptedBackend(), SETTINGS))
        other.load()
        again = other.open(chat.id)
        assert again.steps == chat.steps
        assert again.settings() == chat.settings()
        assert again.title == chat.title


def stop_before(backend: ScriptedBackend, number: int, stop: Callable[[], None]) -> None:
    backend.before_token = lambda token: stop() if token == number else None
