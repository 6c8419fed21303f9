"""The empty screen: what the model is, and how to come back to earlier chats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.settings import Settings
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.on_the_way import stored
from tests.tui.support import NARROW, WIDE, opened, picture_file

DEMO = replace(MODEL, name="demo", is_demo=True)


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_the_welcome_says_how_to_come_back_to_earlier_chats(size: tuple[int, int]) -> None:
    workspace = ScriptedWorkspace(info=DEMO)
    stored(workspace, "Norway")
    async with opened(workspace, size=size) as chat:
        await chat.see("Ctrl+L lists your earlier chat")
        assert "shows the program and knows little." in chat.flat
        stored(workspace, "Rome")
        await chat.press("ctrl+n")
        await chat.see("Ctrl+L lists your 2 earlier chats")


async def test_a_model_that_sees_no_pictures_says_so_and_refuses_them_by_one_line(
    tmp_path: Path,
) -> None:
    workspace = ScriptedWorkspace(info=replace(MODEL, pictures=False))
    async with opened(workspace) as chat:
        await chat.see("sees no pictures")
        assert "or Ctrl+O attaches" not in chat.flat
        assert "Ask anything · / for commands" in chat.flat
        chat.screen.draft.attach([picture_file(tmp_path)])
        await chat.hear("cannot be shown to the model: it sees no pictures")
        await chat.until(lambda: not chat.screen.composer.chips.chips)
        await chat.ask("Hi")
        await chat.see("A short answer.")


async def test_the_welcome_names_the_key_that_the_user_has_chosen() -> None:
    workspace = ScriptedWorkspace()
    stored(workspace, "Norway")
    async with opened(workspace, settings=Settings(shortcuts={"sessions": "f11"})) as chat:
        await chat.see("F11 lists your earlier chat")


async def test_the_last_chat_deleted_is_not_named_any_more() -> None:
    workspace = ScriptedWorkspace()
    stored(workspace, "Norway")
    async with opened(workspace) as chat:
        await chat.see("lists your earlier chat")
        await chat.press("ctrl+l")
        await chat.see("Norway")
        await chat.press("delete", "y")
        await chat.see("nothing found")
        await chat.press("escape")
        await chat.until(lambda: "earlier chat" not in chat.flat)
