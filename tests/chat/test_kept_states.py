"""What one process has read of a chat, the next does not read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Finished, Notice
from q35chat.chat.history.records import new_id
from q35chat.chat.prompt.template import LEAST_SHARED
from q35chat.chat.summary import REQUEST
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.states.listing import ANYBODY, stored_states
from q35chat.states.pool import StatePool
from tests.chat.scripted_chat import finish, open_workspace, store_of
from tests.chat.test_reuse_of_state import ACTIONS, SHORT, User
from tests.doubles.chat_model import END, ChatModel, never, picture, user

PERSONA = "the picture and the red " * 20
LONG = "the red and the picture " * 20
HEADER = 20
"""Tokens that a short question takes with what stands around it, at most."""

Process = Callable[..., Workspace]
MODELS: WeakKeyDictionary[Workspace, ChatModel] = WeakKeyDictionary()


def model(workspace: Workspace) -> ChatModel:
    return MODELS[workspace]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "states"


@pytest.fixture
def pool(folder: Path) -> StatePool:
    return StatePool(folder, 1 << 30)


@pytest.fixture
def process(processor: Path, tmp_path: Path, pool: StatePool) -> Process:
    """Opens the store as a new process does, with a model that knows nothing."""

    def begin(chat_settings: ChatSettings = SHORT, **options: Any) -> Workspace:
        double = ChatModel(processor, capacity=2048, states=pool, **options)
        workspace = open_workspace(tmp_path, double.engine, chat_settings)
        MODELS[workspace] = double
        return workspace

    return begin


def new_tokens(chat: Conversation, text: str = "more") -> int:
    """What a question takes to read."""
    usage = finish(chat.send(text)).usage
    return usage.prompt_tokens - usage.reused_tokens


def one_turn_kept(process: Process) -> tuple[Workspace, Conversation]:
    """A process whose only chat has one turn, of which the state is kept."""
    workspace = process()
    chat = workspace.new()
    finish(chat.send(LONG))
    workspace.wait_idle()
    return workspace, chat


def leave(workspace: Workspace) -> None:
    """End the process."""
    workspace.stop_idle()
    store_of(workspace).close()


def counts(folder: Path, owner: str) -> list[int]:
    return sorted(state.name.count for state in stored_states(folder) if state.name.owner == owner)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_question_in_a_reopened_chat_costs_its_own_tokens(
    process: Process, thinking: bool
) -> None:
    first = process(replace(SHORT, thinking=thinking))
    chat = first.new()
    finish(chat.send(LONG, [picture(64, 64)]))
    first.wait_idle()
    leave(first)
    second = process()
    again = second.open(chat.id)
    second.wait_idle()

    assert new_tokens(again) <= HEADER


def test_a_chat_that_is_left_at_once_is_kept(process: Process) -> None:
    first = process()
    chat = first.new()
    finish(chat.send(LONG))
    leave(first)

    assert new_tokens(process().open(chat.id)) <= 2 * HEADER


def test_a_switch_to_another_chat_and_back_reads_neither_again(process: Process) -> None:
    workspace = process()
    one = workspace.new()
    finish(one.send("one " + LONG))
    other = workspace.new()
    finish(other.send("two " + LONG))
    for chat in (one, other, one):
        workspace.open(chat.id)
        workspace.wait_idle()
        assert new_tokens(chat) <= HEADER
    leave(workspace)


def test_a_chat_has_one_state_however_long_it_gets(process: Process, folder: Path) -> None:
    workspace = process()
    chat = workspace.new()
    for _ in range(4):
        finish(chat.send("Hello"))
        workspace.wait_idle()
        assert len(counts(folder, chat.id)) == 1


def test_where_branches_part_there_is_a_state_and_each_branch_has_its_own(
    process: Process, folder: Path
) -> None:
    first = process()
    chat = first.new()
    finish(chat.send(LONG))
    for text in ("and", "the"):
        finish(chat.send(text) if text == "and" else chat.edit(chat.steps[-2].id, text))
        first.wait_idle()
    leave(first)
    parting, *ends = counts(folder, chat.id)
    assert len(ends) == 2
    assert parting > len(LONG.split())
    for branch in (0, 1):
        second = process()
        again = second.open(chat.id)
        again.choose_branch(branch)
        second.wait_idle()  # the end of the answer as the next prompt has it is read meanwhile
        assert new_tokens(again) <= HEADER
        leave(second)
    third = process()
    again = third.open(chat.id)
    usage = finish(again.edit(again.steps[2].id, "picture")).usage
    assert usage.prompt_tokens - usage.reused_tokens <= 2 * HEADER


def test_a_new_chat_with_known_instructions_starts_warm(process: Process, folder: Path) -> None:
    settings = replace(SHORT, system_prompt=PERSONA)
    first = process(settings)
    finish(first.new().send("Hello"))
    first.wait_idle()
    leave(first)
    (shared,) = counts(folder, ANYBODY)
    assert shared > LEAST_SHARED

    second = process(settings)
    assert new_tokens(second.new()) <= HEADER
    leave(second)
    assert counts(folder, ANYBODY) == [shared]


def test_a_new_chat_with_a_known_picture_reads_only_what_is_asked_of_it(
    process: Process, folder: Path
) -> None:
    shown, settings = picture(640, 640), replace(SHORT, max_image_tokens=128)
    first = process(settings)
    finish(first.new().send("Hello", [shown]))
    first.wait_idle()
    leave(first)
    (shared,) = counts(folder, ANYBODY)
    assert shared > LEAST_SHARED

    second = process(settings)
    usage = finish(second.new().send("the red", [shown])).usage
    assert usage.prompt_tokens - usage.reused_tokens <= HEADER
    assert model(second).vision.pictures == 0


def test_short_instructions_are_no_state_of_their_own(process: Process, folder: Path) -> None:
    workspace = process(replace(SHORT, system_prompt="the"))
    finish(workspace.new().send("Hello"))
    workspace.wait_idle()
    assert counts(folder, ANYBODY) == []


def test_the_first_question_after_a_summary_reads_only_what_is_new(
    process: Process, folder: Path
) -> None:
    first = process()
    double = model(first)
    old = first.new()
    finish(old.send("Hello"))
    turns = [step.turn for step in old.steps]
    asked = replace(SHORT, max_new_tokens=512)
    double.say([*turns, user(REQUEST)], *double.ids(LONG), END, settings=asked)
    fresh, events = first.new_from_summary(old)
    finish(events)
    first.wait_idle()
    assert counts(folder, ANYBODY) == []
    (kept,) = counts(folder, fresh.id)
    assert kept > len(double.ids(LONG))
    leave(first)

    second = process()
    again = second.open(fresh.id)
    assert again.summary == LONG.strip()
    assert new_tokens(again) <= HEADER


def test_a_deleted_chat_leaves_no_state(process: Process, folder: Path) -> None:
    workspace = process(replace(SHORT, system_prompt=PERSONA))
    chat = workspace.new()
    finish(chat.send("Hello"))
    workspace.wait_idle()
    assert counts(folder, chat.id) != []
    workspace.delete(chat.id)
    leave(workspace)
    assert counts(folder, chat.id) == []


def test_a_chat_that_another_process_deleted_is_not_kept_any_more(
    process: Process, folder: Path
) -> None:
    here, there = process(), process()
    chat = here.new()
    finish(chat.send("Hello"))
    here.wait_idle()
    there.delete(chat.id)
    leave(here)
    assert counts(folder, chat.id) == []


def test_a_damaged_state_is_removed_and_all_is_read(process: Process, folder: Path) -> None:
    first = process()
    chat = first.new()
    finish(chat.send(LONG))
    leave(first)
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    second, fresh = process(), process(snapshot_bytes=0)
    again = second.open(chat.id)
    found = finish(again.send("more"))

    assert found.usage.reused_tokens == 0
    assert not path.exists()
    turns = [step.turn for step in again.steps[:3]]
    assert model(fresh).finish(turns, SHORT).token_ids == found.token_ids


def test_the_state_of_another_model_is_not_taken(
    process: Process,
) -> None:
    first = process()
    chat = first.new()
    finish(chat.send(LONG))
    leave(first)
    other = process(digest="1" * 64).open(chat.id)
    assert new_tokens(other) > len(LONG.split())


def test_a_bundle_whose_graphs_nobody_has_counted_keeps_nothing(
    process: Process, folder: Path
) -> None:
    workspace = process(digest="")
    finish(workspace.new().send(LONG))
    leave(workspace)
    assert not folder.exists()


def test_a_state_is_kept_while_an_answer_comes_and_a_question_ends_the_writing(
    process: Process, folder: Path
) -> None:
    workspace, chat = one_turn_kept(process)
    before = counts(folder, chat.id)
    events = chat.send("more")
    for event in events:
        if not isinstance(event, Finished | Notice):
            assert counts(folder, chat.id) == before
    workspace.wait_idle()
    assert counts(folder, chat.id) > before


def test_leaving_while_an_answer_is_computed_keeps_what_was_kept(
    process: Process, folder: Path
) -> None:
    workspace, chat = one_turn_kept(process)
    before = counts(folder, chat.id)
    model(workspace).text.before_run = workspace.stop_idle
    for event in chat.send("more"):
        assert not isinstance(event, Finished) or counts(folder, chat.id) == before


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.data())
def test_any_sequence_of_actions_and_processes_answers_like_a_fresh_engine(
    processor: Path, tmp_path: Path, data: st.DataObject
) -> None:
    pool = StatePool(tmp_path / new_id(), 1 << 30)
    someone = User(ChatModel(processor, capacity=2048, states=pool))
    for action in data.draw(ACTIONS):
        someone.act(*action)
        reopens: bool = data.draw(st.booleans())
        if someone.turns and reopens:
            someone.model.engine.keep(someone.turns, someone.settings, "chat", never)
            someone.model = ChatModel(processor, capacity=2048, states=pool)
