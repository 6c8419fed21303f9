"""What waits to be sent: nothing is sent that nobody sent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from textual import events

from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace
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


async def behind_an_answer(chat: Chat, text: str) -> None:
    """A message that waits for an answer which is being written."""
    await chat.send("go")
    await chat.until(lambda: chat.screen.session.running)
    await chat.send(text)
    await chat.see("sends when the answer is complete")
    await chat.see("Esc keep as a draft")


def held(*replies: Reply) -> tuple[Gate, ScriptedWorkspace]:
    """Replies of which the first waits at a gate."""
    gate = Gate()
    return gate, ScriptedWorkspace([Reply("a b c", gate=gate), *replies])


async def test_a_message_written_while_an_answer_comes_is_sent_after_it() -> None:
    gate, workspace = held(Reply("two"))
    async with opened(workspace) as chat:
        await behind_an_answer(chat, "and then?")
        assert sent(chat) == ["go"]
        assert chat.written == "and then?"
        gate.open()
        await chat.until(lambda: len(chat.conversation.steps) == 4)
        await chat.idle()
        assert sent(chat) == ["go", "and then?"]
        assert chat.written == ""


async def test_escape_takes_it_back_and_a_second_one_stops_the_answer() -> None:
    gate, workspace = held()
    async with opened(workspace) as chat:
        await behind_an_answer(chat, "and then?")
        await chat.press("escape")
        await chat.until(lambda: not chat.screen.session.queued)
        assert chat.screen.session.state == "running"
        assert "sends when" not in chat.flat
        await chat.press("escape")
        await chat.see("■ stopped")
        await chat.idle()
        assert sent(chat) == ["go"]
        assert chat.written == "and then?"
        gate.open()


async def test_nothing_half_written_is_sent_after_an_answer() -> None:
    gate, workspace = held()
    async with opened(workspace) as chat:
        await behind_an_answer(chat, "and then?")
        await chat.write(" And wh")
        await chat.until(lambda: not chat.screen.session.queued)
        gate.open()
        await chat.idle()
        await quiet(chat)
        assert sent(chat) == ["go"]
        assert chat.written == "and then? And wh"


async def test_a_message_sent_while_the_answer_is_being_stopped_follows_it() -> None:
    gate, workspace = held(Reply("two"))
    async with opened(workspace) as chat:
        await chat.send("go")
        await chat.until(lambda: chat.screen.session.running)
        await chat.write("instead")
        await chat.at_once("escape", "enter")
        await chat.until(lambda: len(chat.conversation.steps) == 4)
        assert sent(chat) == ["go", "instead"]
        gate.open()


@pytest.mark.parametrize(
    "reply", [{"finish": "capacity"}, {"error": OSError("x"), "fail_after": 1}]
)
async def test_a_message_behind_an_answer_that_does_not_end_well_is_a_draft_again(
    reply: dict[str, Any],
) -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c", gate=gate, **reply)])) as chat:
        await behind_an_answer(chat, "and then?")
        gate.open()
        await chat.until(lambda: chat.screen.panel.display)
        await quiet(chat)
        assert sent(chat) == ["go"]
        assert chat.written == "and then?"
        assert not chat.screen.session.queued


async def test_a_message_that_waits_is_a_draft_when_the_program_is_left() -> None:
    gate, workspace = held()
    drafts = Drafts.at_home()
    async with opened(workspace, drafts=drafts) as chat:
        await behind_an_answer(chat, "and then?")
        ident = chat.conversation.id
        await chat.press("ctrl+q")
        await chat.see("Stop it and quit?")
        gate.open()
        await chat.see("The answer has ended meanwhile")
        assert sent(chat) == ["go"]
        await chat.press("y")
        await chat.until(lambda: not chat.app.is_running)
    assert Drafts.at_home().get(ident) == "and then?"
