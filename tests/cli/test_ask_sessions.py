from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.history.records import StoreWriteError
from q35chat.chat.values import SamplingSettings, Turn
from q35chat.commands.ask import AskOptions, SamplingOptions, ask_once
from q35chat.commands.model import LoadedModel, ModelChoice
from q35chat.errors import CapacityError, StoreError, UsageError
from q35chat.store import Store
from q35chat.store.folder import data_folder
from q35chat.store.opening import NAME
from tests.cli.scripted import Recorded, recorded
from tests.doubles.scripted_backend import Reply, ScriptedBackend
from tests.store.damages import force
from tests.support.disk import full_after
from tests.vision.files import sample

SAMPLING = SamplingSettings(temperature=0.5)


def ask(
    prompt: str, backend: ScriptedBackend | None = None, **options: Any
) -> tuple[dict[str, Any], Recorded]:
    seen = recorded()
    asked = replace(AskOptions(prompt, model_dir=Path("model"), as_json=True), **options)
    model = LoadedModel(backend or ScriptedBackend(), SAMPLING)
    ask_once(asked, seen.console, lambda choice, threads: model)
    answer: dict[str, Any] = json.loads(seen.out.getvalue())
    return answer, seen


def never(_: ModelChoice, __: int | None) -> LoadedModel:
    raise AssertionError("the model was loaded")


def test_a_question_is_kept_and_the_latest_conversation_goes_on() -> None:
    first, _ = ask("one")
    second, _ = ask("two", continues=True)
    assert second["text"] == "Answer 2 to: two"
    assert second["session"] == first["session"]
    with Store() as store:
        (session,) = store.listed()
    assert (session.id, session.title, session.turns) == (first["session"], "one", 2)


def test_a_damaged_chat_is_named_once_and_goes_on() -> None:
    first, _ = ask("one")
    harm = "UPDATE conversations SET settings = 'null'; UPDATE turns SET parent = id, usage = '{}'"
    force(data_folder() / NAME, harm)
    second, seen = ask("two", continues=True)
    assert second["text"] == "Answer 2 to: two"
    assert second["session"] == first["session"]
    said = "The chat 'one' is damaged in the data folder: its settings, counts and order of turns."
    assert seen.err.getvalue().count(said) == 1


def test_a_new_question_begins_a_conversation_of_its_own() -> None:
    first, _ = ask("one")
    second, _ = ask("two")
    assert first["session"] != second["session"]
    third, _ = ask("three", session=first["session"][:6])
    assert third["session"] == first["session"]
    assert third["text"] == "Answer 2 to: three"


def test_reused_tokens_are_those_of_the_live_state() -> None:
    backend = ScriptedBackend()
    first, _ = ask("one", backend)
    second, _ = ask("two", backend, continues=True)
    assert first["reused_tokens"] == 0
    assert second["reused_tokens"] == first["capacity"]["used"]
    assert ask("three", continues=True)[0]["reused_tokens"] == 0


def test_system_prompt_and_thinking_stay_and_other_options_are_for_one_turn() -> None:
    first, _ = ask(
        "one",
        system="Be brief.",
        thinking_budget=9,
        max_new_tokens=3,
        sampling=SamplingOptions(top_k=7),
    )
    assert first["finish_reason"] == "length"
    with Store() as store:
        record, turns = store.load(first["session"])
    assert record.settings.system_prompt == "Be brief."
    assert (record.settings.thinking, record.settings.thinking_budget) == (True, 9)
    assert record.settings.max_new_tokens is None
    assert record.settings.sampling == SAMPLING
    assert turns[1].settings is not None
    assert turns[1].settings.sampling == replace(SAMPLING, top_k=7)
    again, _ = ask("two", continues=True)
    assert again["finish_reason"] == "stop"
    assert again["reasoning"]


def test_no_save_keeps_nothing() -> None:
    answer, _ = ask("secret", keep=False)
    assert answer["session"] is None
    assert answer["text"] == "Answer 1 to: secret"
    with Store() as store:
        assert store.listed() == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"continues": True}, StoreError, "no chat yet"),
        ({"session": "nope"}, StoreError, "no chat 'nope'"),
        ({"session": "a", "continues": True}, UsageError, "give one"),
        ({"continues": True, "keep": False}, UsageError, "--no-save keeps nothing"),
    ],
)
def test_a_conversation_that_is_not_there_is_said_before_the_model_is_loaded(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        ask_once(AskOptions("Hello", **options), recorded().console, never)


def test_without_a_place_to_keep_it_a_question_is_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    answer, seen = ask("one")
    assert answer["session"] is None
    assert answer["text"] == "Answer 1 to: one"
    assert "this answer is not kept" in seen.err.getvalue()
    with pytest.raises(StoreError, match="data folder"):
        ask("two", continues=True)


@pytest.mark.parametrize("continues", [False, True])
def test_on_a_full_disk_a_question_is_answered_and_not_kept(continues: bool) -> None:
    first, _ = ask("one")
    with full_after(0):
        answer, seen = ask("two", continues=continues)
    assert answer["session"] is None
    assert answer["text"] == f"Answer {1 + continues} to: two"
    assert "this answer is not kept: " in seen.err.getvalue()
    with Store() as store:
        assert len(store.load(first["session"])[1]) == 2


def test_a_disk_that_is_full_meanwhile_keeps_no_question_from_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise StoreWriteError("the disk is full")

    monkeypatch.setattr(Store, "create", full)
    answer, seen = ask("one")
    assert (answer["text"], answer["session"]) == ("Answer 1 to: one", None)
    assert "this answer is not kept: the disk is full" in seen.err.getvalue()


def test_an_answer_that_cannot_be_kept_is_said_and_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> int:
        raise StoreError("the disk is full")

    def reply(turns: Sequence[Turn]) -> Reply:
        monkeypatch.setattr(Store, "save", full)
        return Reply("an answer")

    seen = recorded()
    model = LoadedModel(ScriptedBackend(reply), SAMPLING)
    options = AskOptions("one", model_dir=Path("model"))

    assert ask_once(options, seen.console, lambda choice, threads: model) == 1
    assert seen.out.getvalue() == "an answer\n"
    assert "not all of this answer is kept: the disk is full" in seen.err.getvalue()


def test_a_question_that_does_not_fit_is_not_kept_and_changes_no_settings() -> None:
    first, _ = ask("one")
    with pytest.raises(CapacityError, match="slots"):
        ask("x" * 500, ScriptedBackend(capacity=100), continues=True, max_new_tokens=1)
    with Store() as store:
        record, turns = store.load(first["session"])
    assert len(turns) == 2
    assert record.settings.max_new_tokens is None


def test_a_picture_of_an_earlier_question_needs_no_original(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(sample("PNG"))
    ask("see", images=[path])
    path.unlink()
    backend = ScriptedBackend(lambda turns: Reply(str(len(turns[0].attachments))))
    assert ask("and?", backend, continues=True)[0]["text"] == "1"


def test_stats_name_the_session() -> None:
    answer, seen = ask("one", stats=True)
    assert f"session   {answer['session']}" in seen.err.getvalue()


def test_options_of_one_turn_are_never_in_the_chat_not_even_while_it_is_answered() -> None:
    first, _ = ask("one")
    seen = []

    def look(number: int) -> None:
        with Store() as store:
            seen.append(store.record(first["session"]).settings)

    backend = ScriptedBackend()
    backend.before_token = look
    options = {"max_new_tokens": 3, "sampling": SamplingOptions(top_k=7), "stop": ["x"]}
    ask("two", backend, continues=True, system="Be brief.", **options)
    with Store() as store:
        seen.append(store.record(first["session"]).settings)
    assert [found.system_prompt for found in seen] == ["Be brief."] * 5
    assert {(found.max_new_tokens, found.stop, found.sampling) for found in seen} == {
        (None, (), SAMPLING)
    }


def test_a_question_that_is_refused_leaves_the_system_prompt() -> None:
    first, _ = ask("one", system="Be kind.")
    with pytest.raises(CapacityError, match="slots"):
        ask("x" * 500, ScriptedBackend(capacity=100), continues=True, system="Be brief.")
    with Store() as store:
        assert store.record(first["session"]).settings.system_prompt == "Be kind."
