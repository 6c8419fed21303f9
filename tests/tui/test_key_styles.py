"""The message with readline's keys, and with vi's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import pytest

from q35chat.settings import Settings
from q35chat.tui.commands import read_keymap
from q35chat.user_input import KeyStyle
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened


@asynccontextmanager
async def with_keys(
    style: KeyStyle, workspace: ScriptedWorkspace | None = None
) -> AsyncIterator[Chat]:
    async with opened(workspace, settings=Settings(keys=style)) as chat:
        yield chat


READLINE = {
    "two one": [*"one two", "ctrl+w", "ctrl+a", "ctrl+y", *" ", "ctrl+e", "backspace"],
    "ab": [*"ba", "ctrl+t"],
    "aXb": [*"ab", "ctrl+b", *"X"],
    "one X": [*"one two", "ctrl+left", "ctrl+k", *"X"],
    "X two": [*"one two", "home", "alt+d", *"X"],
    "one two": [*"one two", "ctrl+u", "ctrl+y"],
    "./a": [*"./a b.c/d", "ctrl+w", "backspace"],
    "axc": [*"abc", "ctrl+b", "ctrl+h", *"x"],
    "abc": [*"abc", "ctrl+k", "ctrl+f"],
}


async def test_readlines_keys_edit_the_message_in_the_order_they_are_pressed() -> None:
    async with with_keys("readline") as chat:
        for text, keys in READLINE.items():
            chat.screen.composer.put("")
            await chat.at_once(*keys)
            assert chat.written == text


async def test_the_commands_that_readline_has_the_keys_of_move_to_alt() -> None:
    async with with_keys("readline") as chat:
        await chat.ask("asked before")
        assert "Alt+E edit" in chat.flat
        await chat.press("ctrl+p")
        assert chat.written == "asked before"
        await chat.press("ctrl+n", "ctrl+e")
        assert (chat.written, len(chat.app.screen_stack)) == ("", 2)
        await chat.press("alt+e")
        await chat.see("editing question 1 of 1")
        await chat.press("alt+p")
        await chat.see("Search for")


def test_a_users_own_key_wins_over_that_of_a_style() -> None:
    keymap = read_keymap({"edit": "f9", "quit": "alt+n"}, "readline")
    assert keymap.label("edit") == "F9"
    assert keymap.label("quit") == "Alt+N"
    assert keymap.label("new") == "Ctrl+N"


async def test_vis_keys_command_after_esc_and_the_frame_says_so() -> None:
    async with with_keys("vi") as chat:
        await chat.at_once(*"one two three", "escape", *"bdwix", "escape", *"0~")
        assert chat.written == "One twox "
        await chat.see("NORMAL")
        await chat.press(*"uuu")
        assert chat.written == "one two three"
        await chat.press("enter")
        await chat.sent("one two three")
        assert "NORMAL" not in chat.flat
        await chat.press(*"hjk")
        assert chat.written == "hjk"


async def test_vis_up_and_down_go_through_earlier_questions() -> None:
    async with with_keys("vi") as chat:
        await chat.ask("asked before")
        await chat.press("up", "escape", "k", "j")
        assert chat.written == ""


async def test_esc_stops_an_answer_where_nothing_is_written() -> None:
    gate = Gate()
    async with with_keys("vi", ScriptedWorkspace([Reply("a b c", gate=gate)])) as chat:
        await chat.send("go")
        await chat.until(lambda: chat.screen.session.running)
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation.cancels == 1


@pytest.mark.parametrize("style", get_args(KeyStyle))
async def test_two_keys_open_an_editor_in_every_style(
    style: KeyStyle, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_keys(style) as chat:
        await chat.at_once("ctrl+x", "ctrl+e")
        await chat.hear("cannot be given to another program")
