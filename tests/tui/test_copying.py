"""Copying one of several code blocks."""

from __future__ import annotations

import pytest

from q35chat.chat.values import Turn
from q35chat.tui.markdown import CodeBlock, code_blocks, numbered_blocks
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened

OLDER = "```sh\nmake\n```\n"
NEWER = "```py\na = 1\n```\ntext\n```\n[red]b[/red] [/nope]\nc\n```\n"


@pytest.fixture(autouse=True)
def _no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


async def open_code(chat: Chat) -> list[str]:
    """A conversation with three blocks; what is sent to the terminal's clipboard."""
    turns = [Turn("user", "q"), Turn("assistant", OLDER), Turn("user", "q"),
             Turn("assistant", NEWER)]  # fmt: skip
    conversation = chat.workspace.add("code", turns)
    chat.screen.loader.open(conversation.id)
    await chat.until(lambda: chat.screen.ready is conversation)
    copied: list[str] = []
    chat.app.copy = lambda text, what: copied.append(f"{what}: {text}")  # type: ignore[method-assign]
    return copied


def test_blocks_are_numbered_from_the_newest_answer_in_reading_order() -> None:
    turns = [Turn("assistant", OLDER), Turn("user", "```\nmine\n```"), Turn("assistant", NEWER)]
    assert [block.text for block in numbered_blocks(turns)] == [
        "a = 1", "[red]b[/red] [/nope]\nc", "make",
    ]  # fmt: skip
    assert code_blocks(OLDER) == [CodeBlock("sh", "make")]


async def test_any_block_is_chosen_from_a_list_that_shows_it() -> None:
    async with opened() as chat:
        copied = await open_code(chat)
        await chat.press("f4")
        await chat.see("Copy a code block")
        assert "1 a = 1" in chat.flat
        assert "3 make" in chat.flat
        await chat.until(lambda: chat.flat.count("[red]b[/red] [/nope]") == 2)
        await chat.press("down")
        await chat.until(lambda: chat.flat.count("[red]b[/red] [/nope]") == 3)
        await chat.press("enter")
        await chat.until(lambda: copied == ["code block 2: [red]b[/red] [/nope]\nc"])


async def test_a_digit_in_the_list_copies_that_block_and_escape_none() -> None:
    async with opened() as chat:
        copied = await open_code(chat)
        await chat.press("f4", "9", "3")
        await chat.until(lambda: copied == ["code block 3: make"])
        await chat.press("f4", "escape")
        await chat.pilot.pause()
        assert len(copied) == 1
        assert len(chat.app.screen_stack) == 2


async def test_a_block_is_copied_by_its_number() -> None:
    async with opened() as chat:
        copied = await open_code(chat)
        await chat.press(*"/code 3", "enter")
        await chat.until(lambda: copied == ["code block 3: make"])
        await chat.press(*"/code 7", "enter")
        await chat.hear("There is no code block “7”; 1 to 3 are here")


async def test_the_palette_finds_each_block_and_shows_its_text_as_text() -> None:
    async with opened() as chat:
        copied = await open_code(chat)
        await chat.press("ctrl+p")
        await chat.see("Search for commands")
        await chat.press(*"code block 2")
        await chat.see("2 lines · [red]b[/red] [/nope]")
        await chat.press("enter")
        await chat.press("enter")
        await chat.until(lambda: copied == ["code block 2: [red]b[/red] [/nope]\nc"])


async def test_the_only_block_is_copied_at_once_without_its_fence() -> None:
    workspace = ScriptedWorkspace()
    conversation = workspace.add("code", [Turn("user", "q"), Turn("assistant", OLDER)])
    async with opened(workspace) as chat:
        chat.screen.loader.open(conversation.id)
        await chat.until(lambda: chat.screen.ready is conversation)
        await chat.press("f4")
        await chat.hear("the code block (4 characters)")
