"""What is offered after a turn that failed: a restart only where it may help, else once more."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from q35chat.chat.events import Event
from q35chat.errors import BundleError, PictureError, RuntimeFailure, StoreError, UsageError
from tests.doubles.scripted_backend import PATIENCE_S, Reply
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace
from tests.tui.on_the_way import sent, ways
from tests.tui.support import Chat, opened

HELD = StoreError("The chat is open in another q35chat. Try again when it is closed.")


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """The next call of a method fails before anything is kept."""
    left, method = [error], getattr(ScriptedConversation, name)

    def events(*arguments: object) -> Iterator[Event]:
        if left:
            raise left.pop()
        yield from method(*arguments)

    monkeypatch.setattr(ScriptedConversation, name, events)


async def failed(chat: Chat, question: str = "hello") -> None:
    """Ask, and see the panel."""
    await chat.send(question)
    await chat.see("The answer failed")
    await chat.idle()


@pytest.mark.parametrize(
    "error",
    [HELD, StoreError("the disk is full"), PictureError("house.png is missing"),
     UsageError("another answer runs"), BundleError("the tokenizer is damaged")],
)  # fmt: skip
async def test_what_no_restart_can_help_is_offered_once_more(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "send", error)
    async with opened(ScriptedWorkspace([Reply("fine now")])) as chat:
        await failed(chat)
        assert ways(chat)[0] == "Try again"
        assert "Restart" not in chat.flat
        assert str(error) in chat.flat
        assert chat.written == "hello"
        await chat.press("f5")
        await chat.see("fine now")
        await chat.idle()
        assert not chat.screen.panel.display
        assert sent(chat) == ["hello"]
        assert chat.workspace.loads == 1


@pytest.mark.parametrize("error", [RuntimeFailure("the device is gone"), ZeroDivisionError("x")])
async def test_what_a_restart_may_help_is_offered_one(error: Exception) -> None:
    async with opened(ScriptedWorkspace([Reply(error=error, fail_after=1)])) as chat:
        await failed(chat)
        assert ways(chat) == ["Restart the model and open this chat again", "Export to Markdown"]


async def test_a_chat_that_is_not_to_be_had_offers_a_new_one_for_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(ScriptedWorkspace([Reply("first"), Reply("in the new chat")])) as chat:
        await chat.ask("before")
        refuse(monkeypatch, "send", HELD)
        await failed(chat, "and now?")
        assert ways(chat) == ["Try again", "New chat with this message", "Export to Markdown"]
        old = chat.conversation
        await chat.press("f6")
        await chat.until(lambda: chat.screen.session.available not in {None, old})
        await chat.press("enter")
        await chat.see("in the new chat")
        await chat.idle()
        assert chat.conversation.steps[0].turn.text == "and now?"


async def test_a_question_that_was_kept_is_answered_and_not_asked_twice() -> None:
    reply = Reply("no", error=StoreError("the disk is full"), fail_after=0)
    async with opened(ScriptedWorkspace([reply, Reply("a whole answer")])) as chat:
        await failed(chat)
        await chat.press("f5")
        await chat.see("a whole answer")
        await chat.idle()
        assert sent(chat) == ["hello"]


async def test_an_answer_that_was_cut_goes_on() -> None:
    reply = Reply("half and ", error=StoreError("the disk was full"), fail_after=2)
    async with opened(ScriptedWorkspace([reply, Reply("the rest")])) as chat:
        await failed(chat)
        assert ways(chat)[0] == "Go on with the answer"
        await chat.press("f5")
        await chat.see("half andthe rest")
        await chat.idle()
        assert len(chat.conversation.steps) == 2


async def test_a_failed_retry_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(ScriptedWorkspace([Reply("one"), Reply("two")])) as chat:
        await chat.ask("hello")
        refuse(monkeypatch, "regenerate", HELD)
        await chat.press("alt+r")
        await chat.see("The answer failed")
        await chat.idle()
        await chat.press("f5")
        await chat.see("version 2 of 2")
        await chat.idle()
        assert sent(chat) == ["hello"]


async def test_a_failed_edit_comes_back_as_the_edit_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(ScriptedWorkspace([Reply("one"), Reply("two")])) as chat:
        await chat.ask("hello")
        refuse(monkeypatch, "edit", HELD)
        await chat.press("ctrl+e")
        await failed(chat, " again")
        await chat.see("editing question 1 of 1")
        await chat.press("f5")
        await chat.see("version 2 of 2")
        await chat.idle()
        assert [step.turn.text for step in chat.conversation.steps] == ["hello again", "two"]


async def test_a_failed_summary_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(ScriptedWorkspace([Reply("one"), Reply("summed up")])) as chat:
        await chat.ask("hello")
        refuse(monkeypatch, "summarise", UsageError("The model wrote no summary."))
        await chat.press(*"/summarise", "enter")
        await chat.see("The summary failed")
        await chat.idle()
        await chat.press("f5")
        await chat.see("This chat starts from the summary")


async def test_nothing_else_is_sent_where_another_draft_was_written_meanwhile(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    def late(*_: object) -> Iterator[Event]:
        assert gate.wait(PATIENCE_S)
        yield from ()
        raise HELD

    monkeypatch.setattr(ScriptedConversation, "send", late)
    async with opened() as chat:
        await chat.send("hello")
        await chat.press(*"next")
        gate.set()
        await chat.see("The answer failed")
        await chat.idle()
        assert chat.written == "next"
        assert ways(chat) == ["New chat with this message"]
