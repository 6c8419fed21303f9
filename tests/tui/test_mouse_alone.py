"""What has a key can be done with the mouse alone."""

from __future__ import annotations

import pytest
from textual.widget import Widget
from textual.widgets import OptionList

from q35chat.settings import Settings
from q35chat.tui.commands import COMMANDS, key_label, key_named
from q35chat.tui.widgets.bars import Hints
from q35chat.tui.widgets.pressable import Foot
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import NARROW, WIDE, Chat, list_of_chats, opened


async def click(chat: Chat, widget: type[Widget], words: str) -> None:
    """Click on these words of a widget of the screen on top."""
    await chat.settled()
    found = chat.app.screen.query_one(widget)
    region = found.region
    lines = [strip.text for strip in chat.app.screen._compositor.render_strips()]
    for y in range(region.y, region.bottom):
        x = lines[y].find(words, region.x)
        if x >= 0:
            await chat.pilot.click(offset=(x, y))
            return
    raise AssertionError(f"{words!r} is not there:\n{chat.text}")


def test_every_key_that_is_shown_names_itself_again() -> None:
    for key in {key for command in COMMANDS for key in command.keys.split(",") if key}:
        assert key_named(key_label(key)) == key
    assert [key_named(word) for word in ("F5–F8", "Saved", "↑", "a")] == ["", "", "", ""]


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_the_footer_sends_stops_and_answers_again(size: tuple[int, int]) -> None:
    gate = Gate()
    replies = [Reply("a b c d", gate=gate), Reply("again")]
    async with opened(ScriptedWorkspace(replies), size=size) as chat:
        await chat.write("go")
        await click(chat, Hints, "send")
        await chat.see("Esc stop")
        await click(chat, Hints, "stop")
        await chat.idle()
        await chat.see("■ stopped")
        await click(chat, Hints, "retry")
        await chat.until(lambda: chat.conversation.steps[-1].turn.text == "again")
        await chat.idle()
        await click(chat, Hints, "F1")
        await chat.see("Keys and commands")
        await click(chat, Foot, "Esc")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)


async def test_a_key_of_the_users_own_is_pressed_too() -> None:
    async with opened(settings=Settings(shortcuts={"help": "ctrl+f10"})) as chat:
        await click(chat, Hints, "help")
        await chat.see("Keys and commands")


async def test_a_chat_of_the_list_is_renamed_and_another_one_opened(chat: Chat) -> None:
    await list_of_chats(chat)
    await click(chat, Foot, "F2 title")
    await chat.see("Enter keeps it")
    await click(chat, Foot, "Esc goes back")
    await chat.see("Enter opens")
    await click(chat, OptionList, "Norway")
    await chat.until(lambda: chat.screen.session.current.title == "Norway")
