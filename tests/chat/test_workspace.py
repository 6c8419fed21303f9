from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Finished, Notice
from q35chat.chat.history.journal import Journal
from q35chat.chat.summary import REQUEST
from q35chat.chat.values import HEADING, ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.commands.streaming import work_is_running
from q35chat.errors import CapacityError, StoreError, UsageError
from q35chat.store import Store
from tests.chat.scripted_chat import finish, open_workspace, texts
from tests.doubles.scripted_backend import PATIENCE_S, Reply, ScriptedBackend, echo

SETTINGS = ChatSettings(system_prompt="Be kind.", thinking=True)


def summarising(turns: Sequence[Turn]) -> Reply:
    return Reply("They like tea.") if turns[-1].text == REQUEST else echo(turns)


def test_the_store_works_before_the_model_is_loaded(tmp_path: Path) -> None:
    workspace = Workspace(Store(tmp_path), lambda: (ScriptedBackend(), SETTINGS))
    assert workspace.listed() == []
    for need in (workspace.new, lambda: workspace.model):
        with pytest.raises(UsageError, match="not loaded yet"):
            need()


def test_the_model_is_loaded_once(tmp_path: Path) -> None:
    loaded: list[ScriptedBackend] = []

    def load() -> tuple[ScriptedBackend, ChatSettings]:
        loaded.append(ScriptedBackend())
        return loaded[-1], SETTINGS

    workspace = Workspace(Store(tmp_path), load)
    workspace.load()
    workspace.load()
    assert len(loaded) == 1


def test_leaving_gives_up_a_step_that_never_ends_once_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("q35chat.chat.workspace.LEAVING_S", 0.01)
    workspace = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    chat, flushed, may_end = workspace.new(), threading.Event(), threading.Event()

    def flush(journal: Journal) -> str:
        if journal.record.id == chat.id:
            flushed.set()
        return ""

    def endless(_: threading.Event) -> None:
        may_end.wait()

    monkeypatch.setattr(Journal, "flush", flush)
    workspace._turn_lock.when_idle(endless)
    workspace.stop_idle_soon()
    assert work_is_running()
    assert flushed.wait(PATIENCE_S)
    may_end.set()
    workspace.wait_idle()


def test_the_model_is_loaded_where_nothing_can_be_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Store) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(Store, "sweep", full)
    workspace = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    assert finish(workspace.new().send("one")).reason == "stop"
    assert "disk full" in caplog.text


def test_pick_takes_the_named_the_latest_or_a_new_conversation(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    with pytest.raises(StoreError, match="no chat yet"):
        workspace.pick(latest=True)
    first, second = workspace.new(), workspace.new()
    finish(first.send("one"))
    finish(second.send("two"))
    assert workspace.pick(latest=True).id == second.id
    assert workspace.pick(first.id[:9]).id == first.id
    assert workspace.pick().steps == ()
    with pytest.raises(StoreError, match="no chat 'nope'"):
        workspace.pick("nope")


def test_a_conversation_answers_in_one_process_at_a_time(tmp_path: Path) -> None:
    here = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    chat = here.new()
    finish(chat.send("one"))
    there = open_workspace(tmp_path, ScriptedBackend(), SETTINGS).open(chat.id)
    running = chat.send("two")
    next(running)
    with pytest.raises(StoreError, match="answer is being written"):
        next(there.send("me too"))
    finish(running)
    assert finish(there.send("now me")).reason == "stop"
    assert texts(there)[::2] == ["one", "two", "now me"]


def test_a_deleted_conversation_takes_no_more_turns(tmp_path: Path) -> None:
    here = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    chat = here.new()
    finish(chat.send("one"))
    open_workspace(tmp_path, ScriptedBackend(), SETTINGS).delete(chat.id)
    with pytest.raises(StoreError, match="no chat"):
        next(chat.send("two"))
    assert here.listed() == []


def test_rename_and_delete_reach_the_open_conversation(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, ScriptedBackend(), SETTINGS)
    chat = workspace.new()
    finish(chat.send("one"))
    workspace.rename(chat.id, "Better")
    assert chat.title == "Better"
    with pytest.raises(UsageError, match="at least one character"):
        workspace.rename(chat.id, " \n")
    workspace.delete(chat.id)
    assert workspace.listed() == []


def test_export_goes_through(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path / "data", ScriptedBackend(), SETTINGS)
    chat = workspace.new()
    finish(chat.send("one"))
    assert "Answer 1" in workspace.export_markdown(chat.id, tmp_path / "out").read_text()


def test_a_new_chat_starts_from_a_summary_that_the_model_writes(tmp_path: Path) -> None:
    backend = ScriptedBackend(summarising)
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    old = workspace.new()
    finish(old.send("I like tea"))
    steps = old.steps
    fresh, events = workspace.new_from_summary(old)
    finished = finish(events)
    assert finished.text == "They like tea."
    assert finished.usage.reused_tokens > 0
    assert old.steps == steps
    assert fresh.summary == "They like tea."
    assert fresh.settings() == SETTINGS
    assert fresh.title == "I like tea (continued)"
    assert [one.id for one in workspace.listed()] == [fresh.id, old.id]
    assert open_workspace(tmp_path, backend, SETTINGS).open(fresh.id).summary == "They like tea."
    finish(fresh.send("What do I like?"))
    assert [turn.text for turn in backend.prompts[-1]] == ["What do I like?"]
    assert backend.systems[-1] == f"Be kind.\n\n{HEADING}:\nThey like tea."
    again = workspace.new_from_summary(fresh)[1]
    finish(again)
    assert backend.systems[-1] == f"Be kind.\n\n{HEADING}:\nThey like tea."
    assert workspace.listed()[0].title == "I like tea (continued)"


def gone_on_from_a_summary(workspace: Workspace) -> Conversation:
    """A chat that starts from the summary of another."""
    old = workspace.new()
    finish(old.send("I like tea"))
    fresh, events = workspace.new_from_summary(old)
    finish(events)
    return fresh


def test_the_first_forecast_says_what_of_it_is_the_summary(tmp_path: Path) -> None:
    backend = ScriptedBackend(summarising)
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    fresh = gone_on_from_a_summary(workspace)
    first, without = fresh.forecast("What?"), workspace.new().forecast("What?")
    assert (first.used_slots, without.summary_slots) == (0, 0)
    assert 0 < first.summary_slots == first.turn_slots - without.turn_slots
    assert f"({first.summary_slots} summary)" in fresh.forecast("z" * 10_000).reason
    finish(fresh.send("What?"))
    assert fresh.forecast("And then?").summary_slots == 0


def test_another_system_prompt_leaves_the_summary(tmp_path: Path) -> None:
    backend = ScriptedBackend(summarising)
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    fresh = gone_on_from_a_summary(workspace)
    fresh.change_settings(ChatSettings(system_prompt="Be brief."))
    plan = fresh.forecast("What do I like?")
    usage = finish(fresh.send("What do I like?")).usage
    assert backend.systems[-1] == f"Be brief.\n\n{HEADING}:\nThey like tea."
    assert usage.prompt_tokens == plan.used_slots + plan.turn_slots


def test_a_summary_is_all_of_the_system_prompt_where_there_is_no_other() -> None:
    assert ChatSettings().with_summary("Tea.").system_prompt == f"{HEADING}:\nTea."
    assert SETTINGS.with_summary("") is SETTINGS


def test_a_full_conversation_is_summarised_in_parts(tmp_path: Path) -> None:
    backend = ScriptedBackend(summarising, capacity=900)
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    chat = workspace.new()
    chat.change_settings(ChatSettings())
    questions = [f"Question {number} " + "?" * 80 for number in range(4)]
    for question in questions:
        finish(chat.send(question))
    with pytest.raises(CapacityError):
        next(chat.send("x" * 500))
    backend.prompts.clear()
    fresh, events = workspace.new_from_summary(chat)
    seen = list(events)
    assert sum(isinstance(event, Finished) for event in seen) == 1
    assert any(isinstance(event, Notice) for event in seen)
    assert len(backend.prompts) > 1
    asked = [turn.text for prompt in backend.prompts for turn in prompt if turn.role == "user"]
    assert [text for text in asked if text != REQUEST] == questions
    assert fresh.summary == "They like tea."


def test_a_stopped_summary_changes_nothing(tmp_path: Path) -> None:
    backend = ScriptedBackend(summarising)
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    old = workspace.new()
    finish(old.send("I like tea"))
    fresh, events = workspace.new_from_summary(old)
    old.cancel()
    backend.before_token = lambda number: old.cancel()
    assert finish(events).reason == "cancelled"
    assert fresh.summary == ""
    assert [one.id for one in workspace.listed()] == [old.id]


@pytest.mark.parametrize("why", ["nothing said", "no words", "no room"])
def test_a_summary_that_cannot_be_is_said(tmp_path: Path, why: str) -> None:
    backend = ScriptedBackend(
        lambda turns: Reply("" if turns[-1].text == REQUEST else "yes"),
        capacity=len(REQUEST) + (60 if why == "no room" else 600),
    )
    workspace = open_workspace(tmp_path, backend, SETTINGS)
    chat = workspace.new()
    if why != "nothing said":
        finish(chat.send("x" * 50))
    expected = {
        "nothing said": "nothing to summarise",
        "no words": "wrote no summary",
        "no room": "no room for a summary",
    }[why]
    with pytest.raises((UsageError, CapacityError), match=expected):
        list(workspace.new_from_summary(chat)[1])
