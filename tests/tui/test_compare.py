"""Two models answer the same question, and either answer is kept."""

from __future__ import annotations

import threading

import pytest

from q35chat.errors import RuntimeFailure
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.support import Chat, opened
from tests.tui.test_models import ENTRIES


def workspace(*replies: Reply) -> ScriptedWorkspace:
    scripted = ScriptedWorkspace([Reply("The first answer."), *replies])
    scripted.models = lambda: ENTRIES
    return scripted


async def compared(chat: Chat) -> None:
    await chat.ask("Which one?")
    await chat.press(*"/compare small", "enter")
    await chat.see("1 keep first")


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 12)])
async def test_both_answers_are_seen_with_their_meters_and_the_other_one_is_kept(
    size: tuple[int, int],
) -> None:
    async with opened(workspace(Reply("The second answer.")), size=size) as chat:
        await compared(chat)
        await chat.see("The second answer.")
        await chat.until(lambda: chat.text.count("free") + chat.text.count("%") >= 2)
        assert "The first answer." in chat.flat
        await chat.press("2")
        await chat.hear("The answer of small is a version")
        last = chat.conversation.steps[-1]
        assert (last.turn.text, last.model, last.branches) == ("The second answer.", "small", 2)
        assert chat.screen.session.model is not None
        assert chat.screen.session.model.name == MODEL.name


async def test_the_first_answer_is_kept_by_keeping_it_or_by_closing(chat: Chat) -> None:
    chat.workspace.models = lambda: ENTRIES
    await compared(chat)
    await chat.press("1")
    await chat.until(lambda: len(chat.app.screen_stack) == 2)
    assert chat.conversation.steps[-1].branches == 1
    await chat.press(*"/compare", "enter")
    await chat.see("Compare with")
    assert "● out" not in chat.text
    await chat.press("enter", "escape")
    await chat.until(lambda: len(chat.app.screen_stack) == 2)
    assert chat.conversation.steps[-1].branches == 1


async def test_closing_stops_the_other_model_and_frees_it() -> None:
    gate = Gate()
    async with opened(workspace(Reply("a b c d e f", gate=gate))) as chat:
        await compared(chat)
        gate.let(2)
        await chat.press("2")
        await chat.see("There is no second answer yet")
        await chat.press("escape")
        await chat.until(lambda: all(worker.is_finished for worker in chat.app.workers))
        assert chat.workspace.backend.closed
        gate.open()
        await chat.ask("and now?")
        assert [step.turn.text for step in chat.conversation.steps[::2]] == [
            "Which one?", "and now?",
        ]  # fmt: skip


async def test_a_model_that_cannot_be_loaded_is_told_in_a_line() -> None:
    scripted = workspace()
    async with opened(scripted) as chat:
        scripted.load_gate = threading.Event()
        scripted.load_error = RuntimeFailure("the weights of small take about 9 GB: choose another")
        await compared(chat)
        await chat.see("small is being loaded")
        scripted.load_gate.set()
        await chat.see("the weights of small take about 9 GB: choose another")
        assert "The first answer." in chat.flat


async def test_what_cannot_be_compared_is_refused_in_a_line() -> None:
    async with opened(workspace()) as chat:
        await chat.press(*"/compare small", "enter")
        await chat.hear("There is no question to compare answers of yet")
        await chat.ask("Which one?")
        await chat.press(*"/compare tiny", "enter")
        await chat.hear("There is no other model “tiny”; small can be named")
