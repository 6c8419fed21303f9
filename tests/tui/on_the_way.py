"""What a chat holds and has sent while something is on its way, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from textual import events

from q35chat.chat.conversation import Conversation
from q35chat.chat.service import Step
from tests.doubles.scripted_workspace import (
    MODEL,
    ScriptedConversation,
    ScriptedWorkspace,
    dialogue,
)
from tests.tui.support import Chat

Hold = Callable[[Any, str], None]


def pictures(chat: Chat) -> list[str]:
    return [picture.name for picture in chat.screen.composer.chips.attachments]


def sent(chat: Chat) -> list[str]:
    """The questions of all conversations."""
    histories = [item.steps for item in chat.workspace.conversations.values()]
    return [step.turn.text for history in histories for step in history if step.turn.role == "user"]


async def read(chat: Chat, *names: str) -> None:
    await chat.until(lambda: pictures(chat) == [*names])
    assert not chat.screen.composer.chips.reading


async def quiet(chat: Chat) -> None:
    """Wait until everything that was begun has come to the screen."""
    await chat.until(lambda: all(worker.is_finished for worker in chat.app.workers))
    await chat.pilot.pause()
    await chat.idle()


async def paste(chat: Chat, path: Path) -> None:
    chat.screen.composer.editor.post_message(events.Paste(str(path)))
    await chat.until(lambda: bool(chat.screen.composer.chips.chips))


def stored(workspace: ScriptedWorkspace, *titles: str) -> list[ScriptedConversation]:
    return [workspace.add(title, dialogue(2)) for title in titles]


def resting(used: int, *steps: Step) -> Conversation:
    """What a meter reads of a conversation."""
    return cast("Conversation", SimpleNamespace(used_slots=used, steps=steps, model=MODEL))


def ways(chat: Chat) -> list[str]:
    """What the panel on screen offers."""
    return [way.label for way in chat.screen.panel.ways]


async def open_long(chat: Chat, used: int) -> None:
    """Open a chat that holds so many slots."""
    conversation = chat.workspace.add("Long story", dialogue(3))
    conversation.fill(used)
    await chat.open(conversation)
    await chat.pilot.pause()
