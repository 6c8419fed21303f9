"""Templates as commands of the user's own on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from q35chat.settings.templates import templates_folder
from tests.tui.support import opened


@pytest.fixture(autouse=True)
def folder() -> Path:
    found = templates_folder()
    found.mkdir(parents=True)
    (found / "haiku.md").write_text("Write a haiku on $input!\n")
    (found / "new.md").write_text("Not this.\n")
    return found


async def test_a_template_is_completed_and_asked_with_what_stands_behind_its_name() -> None:
    async with opened() as chat:
        await chat.press(*"/hai")
        await chat.see("/haiku TEXT Write a haiku on $input!")
        await chat.press("enter")
        assert chat.written == "/haiku "
        await chat.press(*"snow", "enter")
        await chat.sent("Write a haiku on snow!")
        assert chat.written == ""


async def test_what_is_pasted_behind_its_name_may_have_many_lines() -> None:
    async with opened() as chat:
        await chat.press(*"/haiku ")
        await chat.at_once(events.Paste("snow\nand ice"), "enter")
        await chat.sent("Write a haiku on snow\nand ice!")


async def test_a_command_of_the_application_stays_what_it_is() -> None:
    async with opened() as chat:
        first = chat.conversation.id
        await chat.press(*"/new", "enter")
        await chat.until(lambda: chat.conversation.id != first)
        assert not chat.conversation.steps


async def test_the_help_lists_the_users_own_commands() -> None:
    async with opened(size=(120, 100)) as chat:
        await chat.press("f1")
        await chat.see("Keys and commands")
        await chat.press("end")
        await chat.see("YOUR OWN")
        await chat.see("/haiku TEXT Write a haiku on $input!")
        assert "Not this" not in chat.flat


async def test_a_template_that_cannot_be_read_is_told_and_the_text_stays(folder: Path) -> None:
    async with opened() as chat:
        (folder / "haiku.md").write_bytes(b"\xff")
        await chat.press(*"/haiku snow", "enter")
        await chat.hear("is not UTF-8")
        assert chat.written == "/haiku snow"
