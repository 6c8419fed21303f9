"""A chat that is open in two processes: neither loses what the other one wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event, Finished, Notice
from q35chat.chat.history.records import ConversationRecord
from q35chat.chat.history.tree import OTHER_SETTINGS, OTHER_TURNS
from q35chat.chat.values import SamplingSettings
from q35chat.chat.workspace import Workspace
from q35chat.store import Store
from tests.chat.scripted_chat import SETTINGS, finish, open_workspace, store_of, texts
from tests.doubles.scripted_backend import ScriptedBackend

BRIEF = replace(SETTINGS, system_prompt="Be brief.")
THINKING = SETTINGS.with_thinking(True)


@pytest.fixture
def other(tmp_path: Path, chat: Conversation) -> Conversation:
    """`chat`, in which one question was asked, as another process opened it then."""
    finish(chat.send("one"))
    elsewhere = open_workspace(tmp_path, ScriptedBackend())
    return elsewhere.open(chat.id)


def stored(workspace: Workspace, chat: Conversation) -> ConversationRecord:
    with Store(store_of(workspace).folder) as store:
        return store.record(chat.id)


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def test_settings_and_turns_of_another_process_are_gone_on_from(
    workspace: Workspace,
    backend: ScriptedBackend,
    chat: Conversation,
    other: Conversation,
) -> None:
    other.change_settings(BRIEF)
    assert other.flush() == ""
    finish(other.send("two"))
    events = list(chat.send("three"))

    assert texts(chat)[::2] == ["one", "two", "three"]
    assert backend.systems[-1] == "Be brief."
    assert chat.settings() == BRIEF
    assert stored(workspace, chat).settings == BRIEF
    assert stored(workspace, chat).head == chat.steps[-1].id
    assert notices(events) == [OTHER_SETTINGS]
    assert notices(list(chat.send("four"))) == []


@pytest.mark.parametrize("what", ["settings", "branch", "left out"])
def test_a_change_overwrites_no_settings_and_no_turns_of_another_process(
    workspace: Workspace, chat: Conversation, other: Conversation, what: str
) -> None:
    other.change_settings(BRIEF)
    assert other.flush() == ""
    finish(other.send("two"))
    if what == "settings":
        chat.change_settings(THINKING)
    elif what == "branch":
        chat.choose_branch(0)
    else:
        chat.drop_oldest(1)
    kept = stored(workspace, chat)

    assert kept.settings.system_prompt == "Be brief."
    assert kept.settings.thinking == (what == "settings")
    assert kept.head == other.steps[-1].id


def test_settings_changed_in_both_processes_are_those_of_both(
    workspace: Workspace, chat: Conversation, other: Conversation
) -> None:
    other.change_settings(BRIEF)
    assert other.flush() == ""
    chat.change_settings(THINKING)
    chat.change_settings(replace(THINKING, sampling=SamplingSettings(seed=7)))
    finish(chat.send("two"))
    expected = replace(BRIEF, thinking=True, sampling=SamplingSettings(seed=7))
    assert chat.settings() == expected
    assert stored(workspace, chat).settings == expected
    finish(other.send("three"))
    assert other.settings() == expected


def test_turns_of_another_process_on_another_branch_stay_a_version_and_it_is_said(
    chat: Conversation, other: Conversation
) -> None:
    finish(other.regenerate())
    finish(other.send("elsewhere"))
    events = list(chat.send("two"))

    assert notices(events) == [OTHER_TURNS]
    assert isinstance(events[-1], Finished)
    assert texts(chat)[::2] == ["one", "two"]
    assert chat.steps[-1].branches == 2
    chat.choose_branch(1)
    assert texts(chat)[::2] == ["one", "elsewhere"]
    assert notices(list(chat.send("three"))) == []


def test_another_branch_that_is_only_read_elsewhere_changes_nothing_here(
    chat: Conversation, other: Conversation
) -> None:
    finish(chat.regenerate())
    list(other.edit(other.steps[-1].id, "another answer"))
    assert notices(list(chat.send("two"))) == [OTHER_TURNS]
    other.choose_branch(0)
    assert notices(list(chat.send("three"))) == []
    assert texts(chat)[::2] == ["one", "two", "three"]


def test_a_branch_that_was_left_and_read_again_goes_on_where_another_process_went_on(
    chat: Conversation, other: Conversation
) -> None:
    finish(chat.regenerate())
    chat.choose_branch(0)
    finish(other.send("two"))
    chat.choose_branch(1)
    chat.choose_branch(0)
    finish(chat.send("three"))
    assert texts(chat)[::2] == ["one", "two", "three"]


def test_the_first_turns_of_a_summarised_chat_are_gone_on_from(
    tmp_path: Path, workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("one"))
    fresh, events = workspace.new_from_summary(chat)
    finish(events)
    other = open_workspace(tmp_path, ScriptedBackend()).open(fresh.id)
    finish(other.send("two"))
    finish(fresh.send("three"))
    assert texts(fresh)[::2] == ["two", "three"]


def test_an_answer_that_is_only_edited_says_it_too(chat: Conversation, other: Conversation) -> None:
    finish(other.regenerate())
    assert list(chat.edit(chat.steps[-1].id, "another answer")) == [Notice(OTHER_TURNS)]


def test_the_answer_that_was_read_is_the_one_that_is_given_again(
    backend: ScriptedBackend, chat: Conversation, other: Conversation
) -> None:
    finish(other.send("two"))
    finish(chat.regenerate())
    assert [turn.text for turn in backend.prompts[-1]] == ["one"]


def test_what_is_not_said_yet_survives_a_question_that_is_refused(
    tmp_path: Path, chat: Conversation, other: Conversation
) -> None:
    other.change_settings(BRIEF)
    assert other.flush() == ""
    chat.backend.model = replace(chat.model, capacity=1)  # type: ignore[misc]
    with pytest.raises(Exception, match="slots"):
        next(chat.send("two"))
    chat.backend.model = replace(chat.model, capacity=10_000)  # type: ignore[misc]
    assert notices(list(chat.send("two"))) == [OTHER_SETTINGS]


def test_a_chat_that_is_opened_again_shows_what_another_process_wrote(
    workspace: Workspace, chat: Conversation, other: Conversation
) -> None:
    finish(other.send("two"))
    assert workspace.open(chat.id) is chat
    assert texts(chat) == texts(other)


def test_a_chat_that_is_opened_again_while_it_answers_shows_no_half_answer(
    workspace: Workspace, chat: Conversation, other: Conversation
) -> None:
    running = chat.send("two")
    next(running)
    question = chat._journal.known(chat.steps[-1].id)
    growing = replace(question, id="growing", parent=question.id)
    chat._journal.stream(replace(growing, turn=replace(growing.turn, role="assistant")))
    other.change_settings(BRIEF)
    assert other.flush() == ""
    assert workspace.open(chat.id) is chat
    assert chat.steps[-1].id == question.id
    running.close()  # type: ignore[attr-defined]
