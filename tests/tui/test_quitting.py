"""The question before leaving, and what becomes of it when its answer ends."""

from __future__ import annotations

from textual import events

from q35chat.tui.chat.drafts import Drafts
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened


async def asked(chat: Chat, behind: str = "") -> None:
    """Quit while an answer is written, with a draft behind the question."""
    await chat.send("go")
    await chat.until(lambda: chat.screen.session.running)
    await chat.write(behind)
    await chat.press("ctrl+q")
    await chat.see("An answer is still being written")


async def test_the_question_follows_the_end_of_the_answer_and_waits_for_a_word() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d", gate=gate)])) as chat:
        await asked(chat)
        gate.open()
        await chat.see("The answer has ended meanwhile. Quit?")
        await chat.idle()
        assert "still being written" not in chat.flat
        assert "Quit (y)" in chat.flat
        assert chat.app.is_running
        await chat.press("y")
        await chat.until(lambda: not chat.app.is_running)
        assert chat.conversation.cancels == 0
        assert [step.turn.text for step in chat.conversation.steps] == ["go", "a b c d"]


async def test_enter_on_the_question_never_sends_the_message_behind_it() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d", gate=gate)])) as chat:
        await asked(chat, behind="half a thought")
        gate.open()
        await chat.see("The answer has ended meanwhile")
        await chat.press("enter")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)
        assert chat.written == "half a thought"
        assert len(chat.conversation.steps) == 2
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)


async def test_a_question_asked_twice_is_asked_once() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d", gate=gate)])) as chat:
        await asked(chat)
        await chat.press("ctrl+q", "ctrl+q")
        assert len(chat.app.screen_stack) == 3
        await chat.press("n")
        assert len(chat.app.screen_stack) == 2


async def test_what_was_typed_and_pasted_right_before_quitting_is_in_the_draft() -> None:
    drafts = Drafts.at_home()
    pasted = "many words " * 20_000
    async with opened(drafts=drafts) as chat:
        await chat.at_once(*"half a thought, ", events.Paste(pasted), "ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    assert Drafts.at_home().get("new") == f"half a thought, {pasted}"


async def test_who_leaves_waits_for_no_prompt_that_is_being_made() -> None:
    async with opened() as chat:
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
        assert chat.workspace.backend.interrupted == [True]
