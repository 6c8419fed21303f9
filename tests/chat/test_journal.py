"""Who shows a conversation waits for nobody who writes, in this process or in another."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event
from q35chat.chat.history.journal import Journal
from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.history.tree import ConversationView
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import StoreError
from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.chat.scripted_chat import (
    SETTINGS,
    assert_reopens_as_it_is,
    finish,
    open_workspace,
    store_of,
    texts,
)
from tests.doubles.scripted_backend import ScriptedBackend

WAIT_S = 30.0
THINKING = SETTINGS.with_thinking(True)


@contextmanager
def another_writes(workspace: Workspace) -> Iterator[None]:
    """Another process is in the middle of a write, for as long as this lasts."""
    connection = sqlite3.connect(store_of(workspace).folder / NAME, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.fixture
def forked(chat: Conversation) -> Conversation:
    """Two questions, and two answers to the second one."""
    finish(chat.send("one"))
    finish(chat.send("two"))
    finish(chat.regenerate())
    return chat


def kept_settings(workspace: Workspace, chat: Conversation) -> ChatSettings:
    with Store(store_of(workspace).folder) as store:
        return store.record(chat.id).settings


def refuse(self: Store, record: object, turns: object, *, since: object, wait: bool) -> int:
    raise StoreError("disk full")


def refuse_after_the_answer(monkeypatch: pytest.MonkeyPatch, events: Iterator[Event]) -> None:
    """From now on whoever writes at once finds an answer ended before, and the disk full."""
    at_once = Journal._write_at_once

    def after_the_answer(self: Journal) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "save", refuse)
            finish(events)
            at_once(self)

    monkeypatch.setattr(Journal, "_write_at_once", after_the_answer)


class SlowStore(Store):
    """Writes only when it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.free, self.writing = threading.Event(), threading.Event()
        self.free.set()

    def save(
        self,
        record: ConversationRecord,
        turns: Sequence[TurnRecord],
        *,
        since: ConversationRecord | None = None,
        wait: bool = True,
    ) -> int:
        self.writing.set()
        assert self.free.wait(WAIT_S)
        return super().save(record, turns, since=since, wait=wait)


def test_what_is_shown_waits_for_no_answer_that_is_being_written(tmp_path: Path) -> None:
    store, backend = SlowStore(tmp_path), ScriptedBackend()
    workspace = Workspace(store, lambda: (backend, SETTINGS))
    workspace.load()
    chat = workspace.new()
    finish(chat.send("one"))
    store.free.clear()
    store.writing.clear()
    worker = threading.Thread(target=lambda: finish(chat.send("two")))
    worker.start()
    assert store.writing.wait(WAIT_S)

    assert texts(chat) == ["one", "Answer 1 to: one"]
    assert chat.used_slots > 0
    chat.change_settings(THINKING)
    assert chat.settings() == THINKING
    chat.cancel()

    store.free.set()
    worker.join(WAIT_S)
    chat.flush()
    assert texts(chat)[2] == "two"
    assert store.record(chat.id).settings == THINKING


def test_settings_change_at_once_while_another_process_writes(
    workspace: Workspace, forked: Conversation
) -> None:
    with another_writes(workspace):
        forked.change_settings(THINKING)
        assert forked.settings() == THINKING
        assert kept_settings(workspace, forked) == SETTINGS
    forked.flush()
    assert kept_settings(workspace, forked) == THINKING


def test_another_branch_is_read_at_once_while_another_process_writes(
    workspace: Workspace, forked: Conversation
) -> None:
    with another_writes(workspace):
        forked.choose_branch(0)
        assert forked.steps[-1].branch == 0
    forked.flush()
    assert_reopens_as_it_is(workspace, forked)


def test_turns_are_left_out_at_once_while_another_process_writes(
    workspace: Workspace, forked: Conversation
) -> None:
    with another_writes(workspace):
        forked.drop_oldest(1)
        assert [step.left_out for step in forked.steps] == [True, True, False, False]
    forked.flush()
    assert_reopens_as_it_is(workspace, forked)


def test_what_could_not_be_written_at_once_goes_with_the_next_turn(
    workspace: Workspace, forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_writes(workspace), monkeypatch.context() as patch:
        patch.setattr("q35chat.chat.worker.Worker.soon", lambda *_: None)
        forked.drop_oldest(1)
        forked.change_settings(THINKING)
    finish(forked.send("three"))
    assert_reopens_as_it_is(workspace, forked)


def test_leaving_the_program_writes_what_could_not_be_written_at_once(
    workspace: Workspace, forked: Conversation
) -> None:
    with another_writes(workspace):
        forked.drop_oldest(1)
        forked.choose_branch(0)
    workspace.stop_idle()
    assert_reopens_as_it_is(workspace, forked)


def test_a_conversation_that_was_left_is_written_all_the_same(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("one"))
    other = open_workspace(store_of(workspace).folder.parent, ScriptedBackend())
    left = other.open(chat.id)
    ident = left.id
    with another_writes(workspace):
        left.change_settings(THINKING)
        del left
    other.stop_idle()
    with Store(store_of(workspace).folder) as store:
        assert store.record(ident).settings == THINKING


def test_leaving_the_program_writes_an_answer_that_could_not_be_written(
    workspace: Workspace, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(chat.send("one"))
    events = chat.send("two")
    next(events)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", refuse)
        finish(events)
    workspace.stop_idle()
    assert_reopens_as_it_is(workspace, chat)


def test_a_change_that_the_disk_refuses_is_not_made(
    forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save", refuse)
    before = forked.steps
    with pytest.raises(StoreError, match="disk full"):
        forked.drop_oldest(1)
    with pytest.raises(StoreError, match="disk full"):
        forked.choose_branch(0)
    assert forked.steps == before


def test_settings_changed_during_an_answer_leave_it_the_last_turn_on_disk(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("one"))
    last = chat._journal.known(chat.steps[-1].id)
    chat._journal.stream(replace(last, id="growing"))
    chat.change_settings(THINKING)
    assert store_of(workspace).record(chat.id).head == "growing"
    assert chat.steps[-1].id == last.id


def test_a_change_that_the_disk_refuses_takes_no_answer_away_that_ended_meanwhile(
    workspace: Workspace, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(chat.send("one"))
    events = chat.send("two")
    next(events)
    refuse_after_the_answer(monkeypatch, events)
    with pytest.raises(StoreError, match="disk full"):
        chat.drop_oldest(1)
    assert texts(chat) == ["one", "Answer 1 to: one", "two", "Answer 2 to: two"]
    assert not any(step.left_out for step in chat.steps)
    chat.flush()
    assert_reopens_as_it_is(workspace, chat)


def test_a_branch_that_the_disk_refuses_keeps_an_answer_that_ended_meanwhile_the_last_turn(
    workspace: Workspace, forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = forked.send("three")
    next(events)
    refuse_after_the_answer(monkeypatch, events)
    with pytest.raises(StoreError, match="disk full"):
        forked.choose_branch(0)
    assert texts(forked)[-2:] == ["three", "Answer 3 to: three"]
    forked.flush()
    assert_reopens_as_it_is(workspace, forked)


def test_a_change_that_the_disk_refuses_leaves_an_earlier_one_owed(
    workspace: Workspace, forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("q35chat.chat.worker.Worker.soon", lambda *_: None)
        with another_writes(workspace):
            forked.drop_oldest(1)
        patch.setattr(Store, "save", refuse)
        last = forked._journal.known(forked.steps[0].id)
        with pytest.raises(StoreError, match="disk full"):
            forked._journal.replace([replace(last, note="other")])
    assert [step.left_out for step in forked.steps] == [True, True, False, False]
    assert forked.flush() == ""
    assert_reopens_as_it_is(workspace, forked)


def test_a_change_that_another_thread_has_written_meanwhile_is_no_failure(
    workspace: Workspace, forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_by_another(self: Journal) -> None:
        assert self._write_owed() == ""
        raise StoreError("disk full")

    monkeypatch.setattr(Journal, "_write_at_once", written_by_another)
    forked.drop_oldest(1)
    forked.choose_branch(0)
    assert [step.left_out for step in forked.steps] == [True, True, False, False]
    assert_reopens_as_it_is(workspace, forked)


def test_nothing_is_owed_once_a_refused_change_is_taken_back(
    forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save", refuse)
    with pytest.raises(StoreError, match="disk full"):
        forked.drop_oldest(1)
    with pytest.raises(StoreError, match="disk full"):
        forked.choose_branch(0)
    assert forked.flush() == ""


def test_steps_and_the_number_of_their_branch_are_of_one_moment(
    forked: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, meanwhile = ConversationView.path, [lambda: forked.choose_branch(0)]
    reader = threading.get_ident()

    def then_another_branch(self: ConversationView) -> tuple[TurnRecord, ...]:
        found = path(self)
        if meanwhile and threading.get_ident() == reader:
            meanwhile.pop()()
        return found

    monkeypatch.setattr(ConversationView, "path", then_another_branch)
    first, again = forked.steps[-1], forked.steps[-1]
    assert (first.branch, again.branch) == (1, 0)
    assert first.id != again.id
