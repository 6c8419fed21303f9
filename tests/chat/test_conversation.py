from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.conversation import StoredConversation
from q35chat.chat.events import Event, Finished, PromptPlan, Token, VisionProgress
from q35chat.chat.values import Attachment, ChatSettings
from q35chat.chat.workspace import StoredWorkspace
from q35chat.errors import CapacityError, RuntimeFailure, StoreError, UsageError
from q35chat.store import Store
from tests.doubles.scripted_backend import Reply, ScriptedBackend

SETTINGS = ChatSettings(system_prompt="Be kind.")


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture
def workspace(tmp_path: Path, backend: ScriptedBackend) -> StoredWorkspace:
    return open_workspace(tmp_path, backend)


@pytest.fixture
def chat(workspace: StoredWorkspace) -> StoredConversation:
    return workspace.new()


@pytest.fixture
def picture(tmp_path: Path, chat: StoredConversation) -> Attachment:
    path = tmp_path / "cat.png"
    path.write_bytes(b"a cat")
    return chat.attach(path)


def open_workspace(folder: Path, backend: ScriptedBackend) -> StoredWorkspace:
    workspace = StoredWorkspace(Store(folder / "data"), lambda: (backend, SETTINGS))
    workspace.load()
    return workspace


def store_of(workspace: StoredWorkspace) -> Store:
    assert isinstance(workspace.store, Store)
    return workspace.store


def finish(events: Iterator[Event]) -> Finished:
    *_, last = events
    assert isinstance(last, Finished)
    return last


def texts(chat: StoredConversation) -> list[str]:
    return [step.turn.text for step in chat.steps]


def assert_reopens_as_it_is(workspace: StoredWorkspace, chat: StoredConversation) -> None:
    with Store(store_of(workspace).folder) as store:
        other = StoredWorkspace(store, lambda: (ScriptedBackend(), SETTINGS))
        other.load()
        again = other.open(chat.id)
        assert again.steps == chat.steps
        assert again.settings() == chat.settings()
        assert again.title == chat.title


def stop_before(backend: ScriptedBackend, number: int, stop: Callable[[], None]) -> None:
    backend.before_token = lambda token: stop() if token == number else None


def test_an_answer_joins_the_conversation_and_the_store(
    workspace: StoredWorkspace, chat: StoredConversation
) -> None:
    finished = finish(chat.send("What is it?"))
    assert texts(chat) == ["What is it?", "Answer 1 to: What is it?"]
    assert chat.steps[1].turn.token_ids == finished.token_ids
    assert chat.steps[1].usage == finished.usage
    assert_reopens_as_it_is(workspace, chat)


def test_the_answer_is_a_step_when_its_end_is_seen(chat: StoredConversation) -> None:
    for event in chat.send("Hi"):
        assert len(chat.steps) == (2 if isinstance(event, Finished) else 1)


def test_a_follow_up_sends_the_whole_conversation_with_the_models_own_ids(
    chat: StoredConversation, backend: ScriptedBackend
) -> None:
    first = finish(chat.send("One"))
    finish(chat.send("Two"))
    turns = backend.prompts[-1]
    assert [turn.text for turn in turns] == ["One", "Answer 1 to: One", "Two"]
    assert turns[1].token_ids == first.token_ids


def test_a_follow_up_reads_only_what_is_new(chat: StoredConversation) -> None:
    finish(chat.send("One"))
    usage = finish(chat.send("Two")).usage
    assert usage.prompt_tokens - usage.reused_tokens == len("[Two][")


def test_an_empty_conversation_is_not_stored(workspace: StoredWorkspace) -> None:
    chat = workspace.new()
    chat.change_settings(ChatSettings(thinking=True))
    assert workspace.sessions() == []
    finish(chat.send("Now"))
    assert [session.id for session in workspace.sessions()] == [chat.id]
    assert workspace.open(chat.id).settings().thinking


def test_the_title_is_the_first_question_until_it_is_renamed(
    workspace: StoredWorkspace, chat: StoredConversation
) -> None:
    finish(chat.send("What is\n the   weather? " + "x" * 100))
    assert chat.title.startswith("What is the weather? xx")
    assert len(chat.title) == 60
    workspace.rename(chat.id, "  Weather\n")
    finish(chat.send("More"))
    assert chat.title == "Weather"
    assert_reopens_as_it_is(workspace, chat)


def test_a_stopped_answer_is_kept_and_marked(
    workspace: StoredWorkspace, chat: StoredConversation, backend: ScriptedBackend
) -> None:
    stop_before(backend, 6, chat.cancel)
    assert finish(chat.send("Long")).reason == "cancelled"
    assert chat.steps[-1].turn.text == "Answer"
    assert chat.steps[-1].turn.finish == "cancelled"
    assert_reopens_as_it_is(workspace, chat)


def test_a_stop_from_another_thread_ends_the_answer(
    chat: StoredConversation, backend: ScriptedBackend
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


def test_a_stop_before_the_first_event_is_not_lost(chat: StoredConversation) -> None:
    events = chat.send("Hello")
    chat.cancel()
    assert finish(events).reason == "cancelled"


def test_a_stop_with_nothing_running_does_not_touch_the_next_turn(
    chat: StoredConversation,
) -> None:
    finish(chat.send("One"))
    chat.cancel()
    assert finish(chat.send("Two")).reason == "stop"


def test_a_stopped_answer_goes_on_where_it_was(
    workspace: StoredWorkspace, chat: StoredConversation, backend: ScriptedBackend
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
    chat: StoredConversation, backend: ScriptedBackend
) -> None:
    events = chat.send("Long")
    chat.cancel()
    finish(events)
    assert texts(chat) == ["Long", ""]
    finish(chat.continue_answer())
    assert texts(chat) == ["Long", "Answer 1 to: Long"]
    assert [turn.role for turn in backend.prompts[-1]] == ["user"]


def test_reasoning_that_was_cut_goes_on_and_ends_in_the_answer(
    workspace: StoredWorkspace, chat: StoredConversation, backend: ScriptedBackend
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
def test_only_an_unfinished_answer_goes_on(chat: StoredConversation, prepare: str) -> None:
    if prepare == "complete":
        finish(chat.send("Hi"))
    with pytest.raises(UsageError):
        next(chat.continue_answer())


def test_a_consumer_that_goes_away_leaves_a_stopped_answer(
    workspace: StoredWorkspace, chat: StoredConversation
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
    workspace: StoredWorkspace, chat: StoredConversation
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
    chat: StoredConversation, workspace: StoredWorkspace, backend: ScriptedBackend
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
    workspace: StoredWorkspace, chat: StoredConversation, backend: ScriptedBackend
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


def test_regenerate_puts_another_answer_beside_the_first(
    workspace: StoredWorkspace, chat: StoredConversation
) -> None:
    finish(chat.send("Q"))
    first = chat.steps[-1].id
    usage = finish(chat.regenerate()).usage
    assert usage.reused_tokens == usage.prompt_tokens - 1
    step = chat.steps[-1]
    assert step.id != first
    assert (step.branch, step.branches) == (1, 2)
    assert_reopens_as_it_is(workspace, chat)
    chat.choose_branch(step.id, 0)
    assert chat.steps[-1].id == first
    assert_reopens_as_it_is(workspace, chat)


def test_an_earlier_answer_is_regenerated_on_its_own_branch(chat: StoredConversation) -> None:
    finish(chat.send("One"))
    finish(chat.send("Two"))
    first, answer, *_ = chat.steps
    finish(chat.regenerate(answer.id))
    assert [step.id for step in chat.steps[:1]] == [first.id]
    assert len(chat.steps) == 2
    chat.choose_branch(chat.steps[1].id, 0)
    assert texts(chat)[2:] == ["Two", "Answer 2 to: Two"]


def test_regenerate_answers_a_question_that_has_no_answer(
    chat: StoredConversation, backend: ScriptedBackend
) -> None:
    backend.fails_at = 0
    with pytest.raises(RuntimeFailure):
        finish(chat.send("Q"))
    backend.fails_at = None
    finish(chat.regenerate())
    assert texts(chat) == ["Q", "Answer 1 to: Q"]


def test_an_earlier_question_is_edited_with_its_pictures_and_the_first_one_kept(
    workspace: StoredWorkspace, chat: StoredConversation, picture: Attachment
) -> None:
    finish(chat.send("Whta?", [picture]))
    finish(chat.send("And then?"))
    question = chat.steps[0]
    finish(chat.edit(question.id, "What?", question.turn.attachments))
    assert texts(chat) == ["What?", "Answer 1 with 1 pictures to: What?"]
    assert (chat.steps[0].branch, chat.steps[0].branches) == (1, 2)
    assert_reopens_as_it_is(workspace, chat)
    chat.choose_branch(chat.steps[0].id, 0)
    assert texts(chat)[0] == "Whta?"
    assert len(chat.steps) == 4


def test_an_edited_answer_is_kept_beside_the_first_and_can_go_on(
    workspace: StoredWorkspace, chat: StoredConversation, backend: ScriptedBackend
) -> None:
    finish(chat.send("Q"))
    assert list(chat.edit(chat.steps[-1].id, "My own words")) == []
    assert texts(chat) == ["Q", "My own words"]
    assert (chat.steps[-1].branch, chat.steps[-1].note) == (1, "edited")
    finish(chat.continue_answer())
    assert texts(chat) == ["Q", "My own words And so on."]
    assert chat.steps[-1].turn.token_ids == ()
    assert backend.prompts[-1][-1].text == "My own words"
    assert_reopens_as_it_is(workspace, chat)


def test_an_unknown_turn_or_branch_is_refused(chat: StoredConversation) -> None:
    finish(chat.send("Q"))
    with pytest.raises(UsageError, match="no turn 'x'"):
        next(chat.edit("x", "text"))
    with pytest.raises(UsageError, match="no branch 2"):
        chat.choose_branch(chat.steps[0].id, 1)
    with pytest.raises(UsageError, match="no branch 0"):
        chat.choose_branch(chat.steps[0].id, -1)


def test_nothing_to_regenerate_is_said(chat: StoredConversation) -> None:
    with pytest.raises(UsageError, match="no question"):
        next(chat.regenerate())


def test_a_picture_is_encoded_once_over_many_turns(
    chat: StoredConversation, picture: Attachment
) -> None:
    first = list(chat.send("See", [picture]))
    second = list(chat.send("Again", [picture]))
    assert sum(isinstance(event, VisionProgress) for event in first) == 1
    assert sum(isinstance(event, VisionProgress) for event in second) == 0


def test_a_lost_picture_is_named_and_the_chat_stays_readable(
    workspace: StoredWorkspace, chat: StoredConversation, picture: Attachment, tmp_path: Path
) -> None:
    finish(chat.send("See", [picture]))
    store_of(workspace).pictures.remove(picture.sha256)
    again = open_workspace(tmp_path, ScriptedBackend()).open(chat.id)
    assert texts(again) == texts(chat)
    assert again.used_slots == 0
    assert "cat.png" in again.forecast("And?").reason
    with pytest.raises(StoreError, match=r"cat\.png.*attach it again"):
        next(again.send("And?"))
    finish(again.edit(again.steps[0].id, "See", [picture]))
    assert finish(again.send("And?")).reason == "stop"


def test_ids_of_another_vocabulary_are_kept_but_not_used(
    workspace: StoredWorkspace, chat: StoredConversation, tmp_path: Path
) -> None:
    finish(chat.send("Q"))
    backend = ScriptedBackend(vocabulary="other letters")
    again = open_workspace(tmp_path, backend).open(chat.id)
    finish(again.send("And?"))
    assert backend.prompts[-1][1].token_ids == ()
    assert again.steps[1].turn.token_ids == chat.steps[1].turn.token_ids
    assert backend.prompts[-1][1].text == chat.steps[1].turn.text


def test_an_answer_of_another_vocabulary_goes_on_without_ids(
    chat: StoredConversation, backend: ScriptedBackend, tmp_path: Path
) -> None:
    stop_before(backend, 6, chat.cancel)
    finish(chat.send("Q"))
    again = open_workspace(tmp_path, ScriptedBackend(vocabulary="other")).open(chat.id)
    finish(again.continue_answer())
    assert texts(again) == ["Q", "Answer 1 to: Q"]
    assert again.steps[-1].turn.token_ids == ()


class TestCapacity:
    @pytest.fixture
    def backend(self) -> ScriptedBackend:
        return ScriptedBackend(lambda turns: Reply("y" * 30), capacity=120)

    def test_the_forecast_is_what_the_plan_will_be(
        self, chat: StoredConversation, picture: Attachment
    ) -> None:
        finish(chat.send("one"))
        forecast = chat.forecast("two", [picture])
        plan = next(chat.send("two", [picture]))
        assert isinstance(plan, PromptPlan)
        assert forecast.fits
        assert forecast.used_slots + forecast.turn_slots == plan.prompt_tokens
        assert forecast.image_slots == picture.tokens
        assert forecast.left_for_answer == plan.slots_free

    def test_the_forecast_is_exact_where_reasoning_is_dropped(
        self, workspace: StoredWorkspace, tmp_path: Path
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

    def test_a_draft_that_does_not_fit_is_said_with_numbers(self, chat: StoredConversation) -> None:
        finish(chat.send("one"))
        forecast = chat.forecast("z" * 200)
        free = 120 - forecast.used_slots
        assert not forecast.fits
        assert f"needs {forecast.turn_slots} slots" in forecast.reason
        assert f"{free} are free" in forecast.reason

    def test_a_question_that_does_not_fit_is_not_kept(
        self, workspace: StoredWorkspace, chat: StoredConversation
    ) -> None:
        finish(chat.send("one"))
        before = chat.steps
        with pytest.raises(CapacityError):
            next(chat.send("z" * 200))
        assert chat.steps == before
        assert_reopens_as_it_is(workspace, chat)

    def test_an_answer_that_fills_the_slots_is_kept_and_goes_on_after_dropping(
        self, workspace: StoredWorkspace, chat: StoredConversation
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

    def test_the_plan_of_dropping_shows_which_turns_and_what_it_costs(
        self, chat: StoredConversation
    ) -> None:
        finish(chat.send("one"))
        finish(chat.send("two"))
        before = chat.used_slots
        plan = chat.plan_drop(1)
        assert [step.turn.text for step in plan.steps] == ["one", "y" * 30]
        assert not any(step.left_out for step in chat.steps)
        chat.drop_oldest(1)
        assert [step.left_out for step in chat.steps] == [True, True, False, False]
        assert chat.used_slots < before
        assert plan.slots_free == 120 - chat.used_slots
        reading = next(chat.send("three"))
        assert isinstance(reading, PromptPlan)
        assert reading.new_tokens == plan.reread_tokens + len("[three][")

    def test_no_more_than_there_are_can_be_dropped(self, chat: StoredConversation) -> None:
        finish(chat.send("one"))
        for pairs in (0, 2, -1):
            with pytest.raises(UsageError):
                chat.drop_oldest(pairs)
        chat.drop_oldest(1)
        assert chat.used_slots == 0
        with pytest.raises(UsageError, match="has 0"):
            chat.plan_drop(1)

    def test_a_dropped_turn_stays_readable_and_out_of_the_prompt(
        self, chat: StoredConversation, backend: ScriptedBackend
    ) -> None:
        finish(chat.send("one"))
        chat.drop_oldest(1)
        finish(chat.send("two"))
        assert [turn.text for turn in backend.prompts[-1]] == ["two"]
        assert texts(chat)[:2] == ["one", "y" * 30]

    def test_a_dropped_question_is_asked_again_as_a_new_branch(
        self, chat: StoredConversation, backend: ScriptedBackend
    ) -> None:
        finish(chat.send("one"))
        chat.drop_oldest(1)
        with pytest.raises(UsageError):
            next(chat.continue_answer())
        finish(chat.regenerate())
        assert [turn.text for turn in backend.prompts[-1]] == ["one"]
        assert (chat.steps[0].branch, chat.steps[0].left_out) == (1, False)


def test_used_slots_follow_settings_and_branch(chat: StoredConversation) -> None:
    assert chat.used_slots == 0
    usage = finish(chat.send("one")).usage
    assert chat.used_slots == usage.capacity_used
    chat.change_settings(replace(SETTINGS, system_prompt=""))
    assert chat.used_slots == usage.capacity_used - len("Be kind.") - 2
