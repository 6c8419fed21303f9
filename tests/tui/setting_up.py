"""The setup screen over the demo, for tests of it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from textual.widgets import Input

from q35chat.tui.exporting import Exporter
from q35chat.tui.screens.setup import SetupScreen
from tests.doubles.scripted_exporter import ScriptedExporter
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.support import Chat, opened

DEMO = replace(MODEL, name="demo", is_demo=True)


def setup_of(chat: Chat) -> SetupScreen:
    screen = chat.app.screen_stack[2]
    assert isinstance(screen, SetupScreen)
    return screen


def put(chat: Chat, field: str, text: str) -> None:
    setup_of(chat).query_one(f"#{field}", Input).value = text


@asynccontextmanager
async def setting_up(
    exporter: Exporter,
    workspace: ScriptedWorkspace | None = None,
    size: tuple[int, int] = (120, 36),
) -> AsyncIterator[Chat]:
    """The setup screen over the demo."""
    async with opened(workspace or ScriptedWorkspace(info=DEMO), size=size) as chat:
        chat.app.exporter = exporter
        await chat.press("f9")
        await chat.see("Get a real model")
        yield chat


async def looked_up(chat: Chat) -> None:
    await chat.press("enter")
    await chat.see("RAM")


async def exporting(chat: Chat, exporter: ScriptedExporter) -> threading.Event:
    """Look the model up and begin an export that goes on until the event it waits for."""
    await looked_up(chat)
    gate = exporter.gate = threading.Event()
    await chat.press("enter")
    await chat.until(lambda: setup_of(chat).state == "running")
    return gate
