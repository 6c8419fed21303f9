"""Between two turns the model reads what a follow-up begins with, so that it costs only itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Finished
from q35chat.chat.values import ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import RuntimeFailure
from tests.chat.scripted_chat import finish, open_workspace
from tests.doubles.chat_model import (
    END,
    GREEDY,
    UNTHINK,
    ChatModel,
    answered,
    never,
    picture,
    user,
)
from tests.doubles.scripted_backend import ScriptedBackend

LONG = "the picture and the red " * 20
QUESTION = [user("Hello", picture(64, 64))]


def spoken(model: ChatModel, settings: ChatSettings, *ids: int) -> list[Turn]:
    """A question and its answer, which the model wrote."""
    model.say(QUESTION, *ids, END, settings=settings)
    return [*QUESTION, answered(model.finish(QUESTION, settings))]


@pytest.mark.parametrize("thinking", [True, False])
def test_a_follow_up_then_costs_only_its_own_tokens(processor: Path, thinking: bool) -> None:
    model, settings = ChatModel(processor), replace(GREEDY, thinking=thinking)
    thought = [*model.ids("so much\n"), UNTHINK, *model.ids("\n\n")] if thinking else []
    turns = spoken(model, settings, *thought, *model.ids(LONG))
    follow_up = [*turns, user("more")]
    before = model.engine.plan(follow_up, settings)
    model.engine.read_ahead(turns, settings, never)
    plan = model.engine.plan(follow_up, settings)

    assert before.new_tokens > len(model.ids(LONG))
    assert plan.new_tokens <= len(model.ids("\n")) + len(model.ids("more")) + 15
    assert plan.prompt_tokens == before.prompt_tokens


def test_the_answer_to_the_follow_up_is_that_of_reading_everything(processor: Path) -> None:
    model, fresh = ChatModel(processor), ChatModel(processor)
    turns = spoken(model, GREEDY, *model.ids(LONG))
    settings = replace(GREEDY, max_new_tokens=12)
    model.engine.read_ahead(turns, settings, never)
    follow_up = [*turns, user("more", picture(64, 96, "blue"))]

    assert (
        model.finish(follow_up, settings).token_ids == fresh.finish(follow_up, settings).token_ids
    )


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_stop_is_seen_after_a_few_tokens_and_what_was_read_stays(
    processor: Path, parts: int
) -> None:
    model, fresh = ChatModel(processor), ChatModel(processor)
    turns = spoken(model, GREEDY, *model.ids(LONG))
    follow_up, settings = [*turns, user("more")], replace(GREEDY, max_new_tokens=12)
    before, ran = model.engine.plan(follow_up, settings), len(model.text.runs)
    asked = count()
    model.engine.read_ahead(turns, settings, lambda: next(asked) >= parts)
    after = model.engine.plan(follow_up, settings)

    assert max(model.text.runs[ran:]) <= 16
    assert before.reused_tokens < after.reused_tokens <= before.reused_tokens + 16 * parts
    assert (
        model.finish(follow_up, settings).token_ids == fresh.finish(follow_up, settings).token_ids
    )


def test_regenerating_afterwards_reads_only_the_header_of_the_answer(processor: Path) -> None:
    model = ChatModel(processor)
    turns = spoken(model, GREEDY, *model.ids(LONG))
    model.engine.read_ahead(turns, GREEDY, never)

    assert model.engine.plan(QUESTION, GREEDY).new_tokens < 10


def test_no_picture_is_encoded_again(processor: Path) -> None:
    model = ChatModel(processor)
    turns = spoken(model, GREEDY, *model.ids(LONG))
    model.engine.read_ahead(turns, GREEDY, never)

    assert model.vision.pictures == 1


def test_nothing_is_read_where_the_state_cannot_go_back(processor: Path) -> None:
    model = ChatModel(processor, snapshot_bytes=0)
    turns = spoken(model, GREEDY, *model.ids(LONG))
    ran = len(model.text.runs)
    model.engine.read_ahead(turns, GREEDY, never)

    assert len(model.text.runs) == ran


class TestInAConversation:
    @pytest.fixture
    def workspace(self, model: ChatModel, tmp_path: Path) -> Workspace:
        return open_workspace(tmp_path, model.engine, GREEDY)

    @pytest.fixture
    def chat(self, workspace: Workspace, model: ChatModel) -> Conversation:
        chat = workspace.new()
        model.say([user("Hello")], *model.ids(LONG), END)
        finish(chat.send("Hello"))
        return chat

    def test_it_happens_after_each_complete_answer(
        self, workspace: Workspace, chat: Conversation, model: ChatModel
    ) -> None:
        workspace.wait_idle()
        model.text.says = {}
        usage = finish(chat.send("more")).usage

        assert usage.prompt_tokens - usage.reused_tokens < 20

    def test_sending_does_not_wait_for_its_end(
        self, chat: Conversation, model: ChatModel, processor: Path
    ) -> None:
        finished = finish(chat.send("more"))
        fresh = ChatModel(processor)
        turns = [step.turn for step in chat.steps[:-1]]
        fresh.text.says = model.text.says

        assert finished.token_ids == fresh.finish(turns, GREEDY).token_ids


def test_an_answer_that_may_go_on_keeps_its_live_state(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    workspace = open_workspace(tmp_path, backend)
    chat = workspace.new()
    backend.before_token = lambda number: chat.cancel() if number == 4 else None
    finish(chat.send("one"))
    workspace.wait_idle()
    assert backend.ahead == []

    backend.before_token = lambda _number: None
    finish(chat.continue_answer())
    workspace.wait_idle()
    assert [turn.text for turn in backend.ahead[-1]] == ["one", "Answer 1 to: one"]


def test_a_turn_that_nobody_hears_to_its_end_reads_nothing_ahead(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    workspace = open_workspace(tmp_path, backend)
    events = workspace.new().send("one")
    for event in events:
        if isinstance(event, Finished):
            break
    del events
    workspace.wait_idle()

    assert backend.ahead == []


def test_a_workspace_may_be_told_to_read_nothing_ahead(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    workspace = open_workspace(tmp_path, backend, reads_ahead=False)
    finish(workspace.new().send("one"))
    workspace.wait_idle()

    assert backend.ahead == []


def test_a_runtime_that_fails_between_turns_is_met_by_the_next_one(tmp_path: Path) -> None:
    class Failing(ScriptedBackend):
        def read_ahead(self, *_: object) -> None:
            raise RuntimeFailure("The runtime died.")

    workspace = open_workspace(tmp_path, Failing())
    chat = workspace.new()
    finish(chat.send("one"))
    workspace.wait_idle()

    assert finish(chat.send("two")).reason == "stop"


def test_a_question_stops_what_is_read_ahead(tmp_path: Path) -> None:
    began, stopped = threading.Event(), threading.Event()

    class Slow(ScriptedBackend):
        def read_ahead(
            self, _turns: object, _settings: object, should_stop: Callable[[], bool]
        ) -> None:
            began.set()
            pause = threading.Event()
            while not should_stop():
                pause.wait(0.001)
            stopped.set()

    workspace = open_workspace(tmp_path, Slow())
    chat = workspace.new()
    finish(chat.send("one"))
    assert began.wait(30)
    plan = next(chat.send("two"))

    assert stopped.is_set()
    assert plan is not None
