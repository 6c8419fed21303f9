from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import PromptPlan
from q35chat.chat.values import Attachment
from q35chat.chat.workspace import Workspace
from q35chat.errors import CapacityError, UsageError
from tests.chat.scripted_chat import (
    SETTINGS,
    assert_reopens_as_it_is,
    finish,
    open_workspace,
    texts,
)
from tests.doubles.scripted_backend import Reply, ScriptedBackend


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend(lambda turns: Reply("y" * 30), capacity=120)


def test_the_forecast_is_what_the_plan_will_be(chat: Conversation, picture: Attachment) -> None:
    finish(chat.send("one"))
    forecast = chat.forecast("two", [picture])
    plan = next(chat.send("two", [picture]))
    assert isinstance(plan, PromptPlan)
    assert forecast.fits
    assert forecast.used_slots + forecast.turn_slots == plan.prompt_tokens
    assert forecast.image_slots == picture.tokens
    assert forecast.left_for_answer == plan.slots_free


def test_the_forecast_is_exact_where_reasoning_is_dropped(
    workspace: Workspace, tmp_path: Path
) -> None:
    backend = ScriptedBackend(lambda turns: Reply("yes", "r" * 40), capacity=400)
    chat = open_workspace(tmp_path, backend).new()
    chat.change_settings(SETTINGS.with_thinking(True))
    finish(chat.send("one"))
    forecast = chat.forecast("two")
    plan = next(chat.send("two"))
    assert isinstance(plan, PromptPlan)
    assert forecast.used_slots + forecast.turn_slots == plan.prompt_tokens
    assert len("two") <= forecast.turn_slots < 40
    assert forecast.left_for_answer == plan.slots_free


def test_a_draft_that_does_not_fit_is_said_with_numbers(chat: Conversation) -> None:
    finish(chat.send("one"))
    forecast = chat.forecast("z" * 200)
    free = 120 - forecast.used_slots
    assert not forecast.fits
    assert f"needs {forecast.turn_slots} slots" in forecast.reason
    assert f"{free} are free" in forecast.reason


def test_a_question_that_does_not_fit_is_not_kept(workspace: Workspace, chat: Conversation) -> None:
    finish(chat.send("one"))
    before = chat.steps
    with pytest.raises(CapacityError):
        next(chat.send("z" * 200))
    assert chat.steps == before
    assert_reopens_as_it_is(workspace, chat)


def test_an_answer_that_fills_the_slots_is_kept_and_goes_on_after_dropping(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("one"))
    finish(chat.send("two"))
    assert finish(chat.send("three")).reason == "capacity"
    assert 0 < len(chat.steps[-1].turn.text) < 30
    assert chat.used_slots == 120
    chat.drop_oldest(1)
    finish(chat.continue_answer())
    assert chat.steps[-1].turn.text == "y" * 30
    assert_reopens_as_it_is(workspace, chat)


def test_the_plan_of_dropping_shows_which_turns_and_what_it_costs(chat: Conversation) -> None:
    finish(chat.send("one"))
    finish(chat.send("two"))
    before = chat.used_slots
    plan = chat.plan_drop(1)
    assert [step.turn.text for step in plan.steps] == ["one", "y" * 30]
    assert not any(step.left_out for step in chat.steps)
    chat.drop_oldest(1)
    chat.flush()
    assert [step.left_out for step in chat.steps] == [True, True, False, False]
    assert chat.used_slots < before
    assert plan.slots_free == 120 - chat.used_slots
    reading = next(chat.send("three"))
    assert isinstance(reading, PromptPlan)
    assert reading.new_tokens == plan.reread_tokens + len("[three][")


def test_no_more_than_there_are_can_be_dropped(chat: Conversation) -> None:
    finish(chat.send("one"))
    for pairs in (0, 2, -1):
        with pytest.raises(UsageError):
            chat.drop_oldest(pairs)
    chat.drop_oldest(1)
    chat.flush()
    assert chat.used_slots == 0
    with pytest.raises(UsageError, match="has 0"):
        chat.plan_drop(1)


def test_a_dropped_turn_stays_readable_and_out_of_the_prompt(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    finish(chat.send("one"))
    chat.drop_oldest(1)
    finish(chat.send("two"))
    assert [turn.text for turn in backend.prompts[-1]] == ["two"]
    assert texts(chat)[:2] == ["one", "y" * 30]


def test_a_dropped_question_is_asked_again_as_a_new_branch(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    finish(chat.send("one"))
    chat.drop_oldest(1)
    with pytest.raises(UsageError):
        next(chat.continue_answer())
    finish(chat.regenerate())
    assert [turn.text for turn in backend.prompts[-1]] == ["one"]
    assert (chat.steps[-1].branch, chat.steps[0].left_out) == (1, False)


def test_an_edited_question_is_forecast_in_its_place(chat: Conversation) -> None:
    finish(chat.send("one"))
    finish(chat.send("two"))
    question = chat.steps[0]
    assert not chat.forecast("o" * 60).fits
    forecast = chat.forecast("o" * 60, edited=question.id)
    plan = next(chat.edit(question.id, "o" * 60))
    assert isinstance(plan, PromptPlan)
    assert forecast.fits
    assert forecast.used_slots + forecast.turn_slots == plan.prompt_tokens
    assert forecast.left_for_answer == plan.slots_free
