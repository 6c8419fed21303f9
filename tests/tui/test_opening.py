"""Keys while another chat is on its way."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from q35chat.errors import StoreError
from q35chat.tui.widgets.transcript import Edge, Transcript
from tests.doubles.scripted_backend import PATIENCE_S, Gate, Reply
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace
from tests.tui.on_the_way import Hold, paste, quiet, read, sent, stored
from tests.tui.support import Chat, opened, picture_file


async def choose_norway(chat: Chat) -> None:
    """Open it from the list; it is the newest one there."""
    await chat.press("ctrl+l")
    await chat.see("Norway")
    await chat.press("enter")
    await chat.until(lambda: chat.screen.session.opening)


async def test_a_question_asked_while_a_chat_is_opened_is_for_that_chat_and_can_be_stopped(
    gate: threading.Event, hold: Hold
) -> None:
    tokens = Gate()
    workspace = ScriptedWorkspace([Reply(), Reply("one two three", gate=tokens)])
    async with opened(workspace) as chat:
        await chat.ask("hello")
        [norway] = stored(workspace, "Norway")
        first = chat.conversation
        hold(workspace, "open")
        await choose_norway(chat)
        await chat.press(*"how far?", "enter")
        await chat.see("sends when the chat is open")
        gate.set()
        await chat.until(lambda: chat.screen.session.running)
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation is norway
        assert (norway.cancels, first.cancels) == (1, 0)
        assert [step.turn.text for step in norway.steps[4:5]] == ["how far?"]
        assert len(first.steps) == 2


async def test_a_text_written_while_a_chat_is_opened_is_for_that_chat(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        await chat.ask("hello")
        [norway] = stored(workspace, "Norway")
        first = chat.conversation
        await chat.write("old thought")
        hold(workspace, "open")
        await choose_norway(chat)
        await chat.press(*"fjord")
        await paste(chat, picture_file(tmp_path))
        gate.set()
        await chat.until(lambda: chat.screen.session.available is norway)
        assert chat.written == "fjord"
        await read(chat, "house.png")
        await chat.open(first)
        assert chat.written == "old thought"
        await read(chat)


async def test_letters_before_control_n_stay_and_letters_after_it_go_along(chat: Chat) -> None:
    await chat.ask("hello")
    first = chat.conversation
    await chat.at_once(*"ab", "ctrl+n", *"cd")
    await chat.until(lambda: chat.screen.session.available not in {None, first})
    await chat.until(lambda: chat.written == "cd")
    await chat.open(first)
    assert chat.written == "ab"


async def test_enter_right_before_control_n_never_sends_the_draft_of_the_new_chat() -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    async with opened(workspace) as chat:
        await chat.write("for later")
        await chat.open(norway)
        await chat.at_once(*"hm?", "enter", "ctrl+n")
        await quiet(chat)
        assert "for later" not in sent(chat)


async def test_commands_for_a_chat_wait_until_it_is_open(
    chat: Chat, gate: threading.Event, hold: Hold
) -> None:
    await chat.ask("hello")
    first = chat.conversation
    settings = first.settings()
    hold(chat.workspace, "new")
    await chat.press("ctrl+n")
    for key in ("alt+r", "ctrl+e", "ctrl+g", "ctrl+n", "ctrl+l", "ctrl+t", "f2"):
        chat.app.messages.clear()
        await chat.press(key)
        await chat.hear("The chat is still being opened")
        assert len(chat.app.screen_stack) == 2
    gate.set()
    await chat.until(lambda: chat.screen.session.available not in {None, first})
    assert (sent(chat), first.settings()) == (["hello"], settings)


async def test_a_chat_that_cannot_be_opened_takes_no_words_with_it(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace()

    def gone(_: str) -> None:
        assert gate.wait(PATIENCE_S), "nobody opened the gate"
        raise StoreError("The chat was deleted by another q35chat. Start a new one.")

    async with opened(workspace) as chat:
        await chat.ask("hello")
        stored(workspace, "Norway")
        before, first = sent(chat), chat.conversation
        await chat.write("old thought")
        monkeypatch.setattr(workspace, "open", gone)
        await choose_norway(chat)
        await chat.press(*"fjord", "enter")
        gate.set()
        await chat.hear("deleted by another q35chat")
        await chat.until(lambda: chat.screen.session.available is first)
        assert chat.written == "old thought\nfjord"
        await quiet(chat)
        assert sent(chat) == before


async def test_a_chat_chosen_while_a_queued_question_begins_waits_for_its_answer(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    tokens = Gate()
    workspace = ScriptedWorkspace([Reply("one two three", gate=tokens)])
    stored(workspace, "Norway")
    hold(ScriptedConversation, "attach")
    async with opened(workspace) as chat:
        first = chat.conversation
        await chat.write("what is it?")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("ctrl+l")
        await chat.see("Norway")
        gate.set()
        await chat.until(lambda: chat.screen.session.running)
        await chat.press("enter")
        await chat.hear("The answer is still being written")
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation is first
        assert first.cancels == 1


async def test_a_chat_that_is_put_on_screen_while_the_program_is_left_is_no_error() -> None:
    async def when_it_is_gone() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        while transcript.query(Edge):
            await asyncio.sleep(0)
        gone.append(True)
        await transcript.synchronise(())

    gone: list[bool] = []
    async with opened() as chat:
        transcript = chat.screen.query_one(Transcript)
        chat.screen.run_worker(when_it_is_gone())
    assert gone
