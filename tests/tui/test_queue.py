"""What waits to be sent: nothing is sent that nobody sent."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual import events

from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_workspace import (
    ScriptedConversation,
    ScriptedWorkspace,
)
from tests.tui.on_the_way import Hold, paste, quiet, read, sent, stored
from tests.tui.support import Chat, opened, picture_file


async def test_a_queue_without_its_only_picture_sends_nothing(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    hold(ScriptedConversation, "attach")
    async with opened() as chat:
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("backspace")
        await chat.until(lambda: not chat.screen.session.queued)
        assert "sends when" not in chat.flat
        gate.set()
        await quiet(chat)
        assert not sent(chat)


async def test_another_chat_sends_neither_the_queue_nor_its_own_draft(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    async with opened(workspace) as chat:
        before = sent(chat)
        await chat.write("for later")
        await chat.open(norway)
        hold(ScriptedConversation, "attach")
        await chat.write("what is it?")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("ctrl+n")
        await chat.until(lambda: chat.screen.session.available is not norway)
        gate.set()
        await quiet(chat)
        assert sent(chat) == before
        assert chat.written == "for later"


async def test_a_new_chat_after_an_empty_queue_stays_empty(
    chat: Chat, tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    await chat.ask("hello")
    hold(ScriptedConversation, "attach")
    await paste(chat, picture_file(tmp_path))
    await chat.press("enter")
    await chat.see("sends when the picture is read")
    await chat.new()
    gate.set()
    await quiet(chat)
    assert sent(chat) == ["hello"]


async def test_making_room_for_a_text_that_is_gone_sends_nothing() -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    norway.fill(2_000)
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        before = sent(chat)
        await chat.write("word " * 60)
        await chat.see("✗ this turn needs")
        await chat.press("enter")
        await chat.see("This turn does not fit")
        chat.screen.composer.editor.clear()
        await chat.press("f6")
        await chat.hear("Left out")
        await quiet(chat)
        assert sent(chat) == before


async def test_a_folded_paste_of_nothing_but_blanks_is_no_message(chat: Chat) -> None:
    chat.screen.composer.editor.post_message(events.Paste(" \n" * 3_000))
    await chat.see("[paste #1")
    await chat.press("enter")
    await quiet(chat)
    assert not sent(chat)


@pytest.mark.parametrize("key", ["alt+r", "ctrl+e"])
async def test_what_is_done_instead_ends_the_queue(
    chat: Chat, key: str, tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    await chat.ask("hello")
    hold(ScriptedConversation, "attach")
    await chat.write("what is it?")
    await paste(chat, picture_file(tmp_path))
    await chat.press("enter")
    await chat.see("sends when the picture is read")
    await chat.press(key)
    gate.set()
    await quiet(chat)
    assert sent(chat) == ["hello"]
    await chat.press("escape")
    await chat.until(lambda: chat.written == "what is it?")
    await read(chat, "house.png")
