"""Slots are counted where a worker already runs; whoever shows them only reads a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import PromptPlan
from q35chat.chat.values import ChatSettings, Turn
from q35chat.errors import RuntimeFailure
from tests.chat.scripted_chat import SETTINGS, finish, open_workspace
from tests.doubles.scripted_backend import ScriptedBackend


class Counting(ScriptedBackend):
    """Counts how often it was asked for a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.plans = 0

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        self.plans += 1
        return super().plan(turns, settings)


@pytest.fixture
def backend() -> Counting:
    return Counting()


def counted_now(chat: Conversation, backend: Counting) -> int:
    """What is shown, and no plan is asked for."""
    before = backend.plans
    used = chat.used_slots
    assert backend.plans == before
    return used


def test_a_turn_that_has_ended_is_counted(chat: Conversation, backend: Counting) -> None:
    usage = finish(chat.send("one")).usage
    assert counted_now(chat, backend) == usage.capacity_used


def test_an_opened_conversation_is_counted(
    chat: Conversation, backend: Counting, tmp_path: Path
) -> None:
    used = finish(chat.send("one")).usage.capacity_used
    other = Counting()
    again = open_workspace(tmp_path, other).open(chat.id)
    assert counted_now(again, other) == used


def test_a_turn_that_failed_is_counted(chat: Conversation, backend: Counting) -> None:
    finish(chat.send("one"))
    before = counted_now(chat, backend)
    backend.fails_at = 3
    with pytest.raises(RuntimeFailure):
        finish(chat.send("two"))
    assert counted_now(chat, backend) > before + len("two")


def test_an_edited_answer_is_counted(chat: Conversation, backend: Counting) -> None:
    finish(chat.send("one"))
    before = counted_now(chat, backend)
    list(chat.edit(chat.steps[-1].id, "y" * 50))
    assert counted_now(chat, backend) == before - len("Answer 1 to: one]") + 50


def test_another_branch_takes_at_once_what_its_answer_told_and_is_then_counted(
    chat: Conversation, backend: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = finish(chat.send("one")).usage.capacity_used
    finish(chat.edit(chat.steps[0].id, "a longer question"))
    with monkeypatch.context() as patch:
        patch.setattr("q35chat.chat.worker.Worker.soon", lambda *_: None)
        chat.choose_branch(0)
        assert counted_now(chat, backend) == first
    before = backend.plans
    chat.choose_branch(0)
    chat.flush()
    assert backend.plans > before
    assert counted_now(chat, backend) == first


class Opening(Counting):
    """Opens a thought that is asked for with a token of the prompt."""

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        plan = super().plan(turns, settings)
        return replace(plan, prompt_tokens=plan.prompt_tokens + settings.thinking)


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        (replace(SETTINGS, system_prompt="Be kind and brief."), len(" and brief")),
        (replace(SETTINGS, system_prompt=""), -len("<Be kind.>")),
        (replace(SETTINGS, thinking=True), 1),
    ],
    ids=["another system prompt", "no system prompt", "thinking"],
)
def test_settings_that_change_the_prompt_are_counted(
    tmp_path: Path, changed: ChatSettings, more: int
) -> None:
    backend = Opening()
    chat = open_workspace(tmp_path, backend).new()
    finish(chat.send("one"))
    before = counted_now(chat, backend)
    chat.change_settings(changed)
    chat.flush()
    assert counted_now(chat, backend) == before + more


def test_turns_that_were_left_out_are_counted_in_the_background(
    chat: Conversation, backend: Counting
) -> None:
    finish(chat.send("one"))
    finish(chat.send("two"))
    chat.drop_oldest(1)
    chat.flush()
    used = counted_now(chat, backend)
    assert used == len("<Be kind.>[two][Answer 2 to: two]")
