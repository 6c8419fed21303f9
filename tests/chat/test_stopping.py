from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Finished, PromptPlan, Token
from q35chat.chat.workspace import Workspace
from q35chat.errors import RuntimeFailure, UsageError
from tests.chat.scripted_chat import (
    SETTINGS,
    assert_reopens_as_it_is,
    finish,
    stop_before,
    texts,
)
from tests.doubles.scripted_backend import ScriptedBackend


def test_a_stopped_answer_is_kept_and_marked(
    workspace: Workspace, chat: Conversation, backend: ScriptedBackend
) -> None:
    stop_before(backend, 6, chat.cancel)
    assert finish(chat.send("Long")).reason == "cancelled"
    assert chat.steps[-1].turn.text == "Answer"
    assert chat.steps[-1].turn.finish == "cancelled"
    assert_reopens_as_it_is(workspace, chat)


def test_a_stop_from_another_thread_ends_the_answer(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    speaking, stopped = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 3:
            speaking.set()
            assert stopped.wait(30)

    backend.before_token = pause
    ends: list[Finished] = []
    worker = threading.Thread(target=lambda: ends.append(finish(chat.send("Long"))))
    worker.start()
    assert speaking.wait(30)
    chat.cancel()
    stopped.set()
    worker.join(30)
    assert [end.reason for end in ends] == ["cancelled"]
    assert chat.steps[-1].turn.text == "Ans"


def test_a_stop_interrupts_the_making_of_the_prompt_and_nothing_else(
    chat: Conversation, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = backend.plan

    def stopped(*asked: Any) -> PromptPlan:
        chat.cancel()
        return plan(*asked)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "plan", stopped)
        events = chat.send("Hello")
        next(events)
    assert backend.interrupted == [False]
    assert finish(events).reason == "cancelled"
    stop_before(backend, 2, chat.cancel)
    assert finish(chat.send("More")).reason == "cancelled"
    chat.cancel()
    assert backend.interrupted == [False]


def test_a_stop_before_the_first_event_is_not_lost(chat: Conversation) -> None:
    events = chat.send("Hello")
    chat.cancel()
    assert finish(events).reason == "cancelled"


def test_a_stop_with_nothing_running_does_not_touch_the_next_turn(
    chat: Conversation,
) -> None:
    finish(chat.send("One"))
    chat.cancel()
    assert finish(chat.send("Two")).reason == "stop"


def test_a_stopped_answer_goes_on_where_it_was(
    workspace: Workspace, chat: Conversation, backend: ScriptedBackend
) -> None:
    stop_before(backend, 6, chat.cancel)
    part = finish(chat.send("Long"))
    backend.before_token = lambda _number: None
    rest = finish(chat.continue_answer())
    assert texts(chat) == ["Long", "Answer 1 to: Long"]
    assert chat.steps[-1].turn.token_ids == part.token_ids + rest.token_ids
    assert chat.steps[-1].turn.finish == "stop"
    assert chat.steps[-1].branches == 1
    assert rest.usage.reused_tokens == rest.usage.prompt_tokens - 1
    assert_reopens_as_it_is(workspace, chat)


def test_an_answer_stopped_before_its_first_token_goes_on_from_the_question(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    events = chat.send("Long")
    chat.cancel()
    finish(events)
    assert texts(chat) == ["Long", ""]
    finish(chat.continue_answer())
    assert texts(chat) == ["Long", "Answer 1 to: Long"]
    assert [turn.role for turn in backend.prompts[-1]] == ["user"]


def test_reasoning_that_was_cut_goes_on_and_ends_in_the_answer(
    workspace: Workspace, chat: Conversation, backend: ScriptedBackend
) -> None:
    chat.change_settings(SETTINGS.with_thinking(True))
    stop_before(backend, 4, chat.cancel)
    finish(chat.send("Why?"))
    assert (chat.steps[-1].turn.reasoning, chat.steps[-1].turn.text) == ("They", "")
    backend.before_token = lambda _number: None
    finish(chat.continue_answer())
    assert chat.steps[-1].turn.reasoning == "They ask 4 letters."
    assert chat.steps[-1].turn.text == "Answer 1 to: Why?"
    assert_reopens_as_it_is(workspace, chat)


@pytest.mark.parametrize("prepare", ["empty", "complete"])
def test_only_an_unfinished_answer_goes_on(chat: Conversation, prepare: str) -> None:
    if prepare == "complete":
        finish(chat.send("Hi"))
    with pytest.raises(UsageError):
        next(chat.continue_answer())


def test_a_consumer_that_goes_away_leaves_a_stopped_answer(
    workspace: Workspace, chat: Conversation
) -> None:
    events = chat.send("Long")
    heard = "".join(
        event.text for event, _ in zip(events, range(8), strict=False) if isinstance(event, Token)
    )
    del events
    gc.collect()
    assert chat.steps[-1].turn.text.startswith(heard)
    assert chat.steps[-1].turn.finish == "cancelled"
    assert_reopens_as_it_is(workspace, chat)


def test_an_abandoned_answer_does_not_block_the_next_turn(
    workspace: Workspace, chat: Conversation
) -> None:
    held = chat.send("First")
    for event in held:
        if isinstance(event, Token):
            break
    other = workspace.new()
    assert finish(other.send("Second")).reason == "stop"
    assert chat.steps[-1].turn.finish == "cancelled"
    assert list(held) == []


def test_a_second_answer_is_refused_while_the_first_one_computes(
    chat: Conversation, workspace: Workspace, backend: ScriptedBackend
) -> None:
    refused: list[str] = []

    def ask_elsewhere(number: int) -> None:
        if number == 3:
            with pytest.raises(UsageError, match="still being written") as error:
                next(workspace.new().send("Me too"))
            refused.append(str(error.value))

    backend.before_token = ask_elsewhere
    assert finish(chat.send("First")).reason == "stop"
    assert len(refused) == 1


def test_a_runtime_that_dies_keeps_the_answer_and_says_why(
    workspace: Workspace, chat: Conversation, backend: ScriptedBackend
) -> None:
    backend.fails_at = 6
    with pytest.raises(RuntimeFailure):
        finish(chat.send("Long"))
    step = chat.steps[-1]
    assert (step.turn.text, step.turn.finish, step.note) == ("Answer", None, "The runtime died.")
    assert_reopens_as_it_is(workspace, chat)
    backend.fails_at = None
    finish(chat.continue_answer())
    assert chat.steps[-1].turn.text == "Answer 1 to: Long"
