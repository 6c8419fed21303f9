"""Another model answers a question once, and is freed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.backend import ChatBackend
from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import UsageError
from q35chat.store import Store
from tests.chat.scripted_chat import SETTINGS
from tests.doubles.scripted_backend import Reply, ScriptedBackend

OWN = SamplingSettings(temperature=0.3)


@pytest.fixture
def other() -> ScriptedBackend:
    return ScriptedBackend(lambda _: Reply("the other"), vocabulary="other")


@pytest.fixture
def workspace(tmp_path: Path, other: ScriptedBackend) -> Workspace:
    def beside(_: Path) -> tuple[ChatBackend, ChatSettings]:
        return other, replace(SETTINGS, sampling=OWN)

    mine = ScriptedBackend(lambda _: Reply("mine"))
    fresh = Workspace(
        Store(tmp_path), lambda: (mine, SETTINGS), load_beside=beside, reads_ahead=False
    )
    fresh.load()
    return fresh


def test_the_other_model_is_asked_the_same_with_its_own_sampling_and_freed(
    workspace: Workspace, other: ScriptedBackend
) -> None:
    conversation = workspace.new()
    list(conversation.send("one"))
    comparison = workspace.compare(conversation, Path("small"))
    list(comparison.events())
    assert [turn.text for turn in other.prompts[0]] == ["one"]
    assert other.closed
    assert conversation.steps[-1].branches == 1
    comparison.keep()
    last = conversation.steps[-1]
    assert (last.turn.text, last.branches, last.branch) == ("the other", 2, 1)
    assert conversation.settings() == SETTINGS
    assert workspace.open(conversation.id).steps[-1].turn.text == "the other"
    list(conversation.send("two"))
    assert [step.turn.text for step in conversation.steps] == ["one", "the other", "two", "mine"]


def test_one_that_is_cancelled_while_it_loads_is_freed_and_not_asked(
    workspace: Workspace, other: ScriptedBackend
) -> None:
    conversation = workspace.new()
    list(conversation.send("one"))
    comparison = workspace.compare(conversation, Path("small"))
    comparison.cancel()
    assert list(comparison.events()) == []
    assert (other.closed, other.prompts, comparison.answered) == (True, [], False)


def test_without_a_question_there_is_nothing_to_compare(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no question to compare"):
        workspace.compare(workspace.new(), Path("small"))
