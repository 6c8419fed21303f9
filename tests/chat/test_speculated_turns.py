"""Tokens guessed ahead, right or wrong, change nothing that a turn tells or leaves behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings

from q35chat.chat.events import Event, Finished, Token
from q35chat.chat.turn import reading
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.engine import speculation
from q35chat.engine.speculation import Odds
from q35chat.user_input import Speculate
from tests.chat.test_reuse_of_state import ACTIONS, WORDS, User, _run
from tests.doubles.chat_model import END, GREEDY, ChatModel, tokens, user
from tests.doubles.guesses import Guesses

LONGER = replace(GREEDY, max_new_tokens=14, thinking_budget=8)
HELLO = [user("Hello")]


@dataclass(slots=True)
class Guided(User):
    """Somebody whose model guesses."""

    wrong: float = 0.3
    drafted: int = 0
    accepted: int = 0

    def checked(self, turns: list[Turn], stop_after: int | None) -> Finished:
        expected = _run(ChatModel(self.model.processor), turns, self.settings, stop_after)
        finished = _guided(self.model, turns, self.settings, stop_after, expected, self.wrong)
        self.drafted += finished.usage.drafted_tokens
        self.accepted += finished.usage.accepted_tokens
        for name in ("reason", "text", "reasoning", "token_ids"):
            assert getattr(finished, name) == getattr(expected, name)
        assert finished.usage.capacity_used == expected.usage.capacity_used
        return finished


def _guided(
    model: ChatModel,
    turns: list[Turn],
    used: ChatSettings,
    stop_after: int | None,
    expected: Finished,
    wrong: float,
) -> Finished:
    def guesses(_: object) -> Guesses:
        return Guesses(expected.token_ids, wrong, seed=len(turns))

    with mock.patch.object(speculation, "PromptLookup", guesses):
        return _run(model, turns, used, stop_after)


def guessing(processor: Path, capacity: int = 2048) -> ChatModel:
    return ChatModel(processor, capacity=capacity, can_try=True, speculate="lookup")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(ACTIONS)
def test_any_sequence_of_actions_answers_like_a_fresh_engine_that_does_not_guess(
    processor: Path, actions: list[tuple[str, int, set[int]]]
) -> None:
    someone = Guided(guessing(processor), settings=LONGER)
    with mock.patch.object(reading, "PART", 2):
        for action in actions:
            someone.act(*action)


@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_a_conversation_with_right_and_wrong_guesses(processor: Path, wrong: float) -> None:
    someone = Guided(guessing(processor), settings=LONGER, wrong=wrong)
    for number in range(len(WORDS)):
        someone.act("send", number, {number % 3})
        someone.act("regenerate", 0, set())

    turns = 2 * len(WORDS)
    assert someone.drafted > turns
    if wrong == 0.0:  # the last token of an answer is not read
        assert someone.accepted >= someone.drafted - turns
    else:
        assert (someone.accepted == 0) == (wrong == 1.0)


def events(model: ChatModel, used: ChatSettings) -> list[Event]:
    """All events, without what depends on time."""
    return [
        replace(event, predict_ms=0.0, wall_ms=0.0) if isinstance(event, Token) else event
        for event in model.run(HELLO, used)
        if isinstance(event, Token)
    ]


@pytest.mark.parametrize(
    "used",
    [
        replace(GREEDY, max_new_tokens=30),
        replace(GREEDY, max_new_tokens=1),
        replace(GREEDY, stop=("ab c",)),
        replace(GREEDY, stop=("c",)),
        replace(GREEDY, loop_guard=True),
        replace(GREEDY, thinking=True, thinking_budget=5, max_new_tokens=9),
        ChatSettings(SamplingSettings(temperature=1.5, seed=3), max_new_tokens=60),
        ChatSettings(
            SamplingSettings(temperature=0.8, top_k=20, repetition_penalty=1.2, seed=4),
            max_new_tokens=60,
        ),
    ],
)
def test_every_token_event_is_that_of_plain_steps(processor: Path, used: ChatSettings) -> None:
    plain, ahead = ChatModel(processor), guessing(processor, 512)
    answer = [*plain.ids("ab ab ab ab ab ab cab ab" * 3), END]
    for model in (plain, ahead):
        model.say(HELLO, *answer, settings=used)

    assert events(ahead, used) == events(plain, used)


def test_what_repeats_is_said_in_fewer_runs(processor: Path) -> None:
    model = guessing(processor, 512)
    model.say(HELLO, *model.ids("one two three four " * 8), END)
    before = len(model.text.runs)

    finished = model.finish(HELLO)

    assert finished.text == "one two three four " * 8
    assert len(model.text.runs) - before < len(finished.token_ids) / 2
    assert 0 < finished.usage.accepted_tokens <= finished.usage.drafted_tokens


@pytest.mark.parametrize("room", range(1, 14))
def test_the_last_slot_of_the_capacity_is_used(processor: Path, room: int) -> None:
    needed = ChatModel(processor).engine.plan(HELLO, GREEDY).prompt_tokens
    model = guessing(processor, needed + room)
    model.say(HELLO, *model.ids("abababababababababab"))

    finished = model.finish(HELLO)

    assert (finished.reason, finished.text) == ("capacity", "abababababababababab"[: room + 1])
    assert finished.usage.capacity_free == 0


@pytest.mark.parametrize("shown", range(1, 16))
def test_a_stop_between_steps_keeps_what_was_said_and_the_next_turn_goes_on(
    processor: Path, shown: int
) -> None:
    plain, model = ChatModel(processor), guessing(processor, 512)
    stop, count = threading.Event(), 0
    model.say(HELLO, *model.ids("abababababababababab"))
    for event in model.engine.run(HELLO, GREEDY, stop.is_set):
        count += isinstance(event, Token)
        if count == shown:
            stop.set()
    assert isinstance(event, Finished)
    assert (event.reason, event.text) == ("cancelled", "abababababababababab"[:shown])
    turns = [*HELLO, Turn("assistant", event.text, token_ids=event.token_ids, finish="cancelled")]
    model.text.says = plain.text.says = {}

    more = model.finish(turns, LONGER)

    assert more.usage.reused_tokens == event.usage.capacity_used
    assert more.token_ids == plain.finish(turns, LONGER).token_ids


def test_a_turn_that_nobody_reads_to_its_end_leaves_a_state_to_go_on_from(processor: Path) -> None:
    model = guessing(processor, 512)
    model.say(HELLO, *model.ids("abababababababababab"))
    run = model.engine.run(HELLO, GREEDY, lambda: False)
    for event in run:
        if isinstance(event, Token) and event.slots_free < 512 - 40:
            break
    run.close()  # type: ignore[attr-defined]
    model.text.says = {}

    assert model.finish(HELLO, LONGER).token_ids == (
        ChatModel(processor).finish(HELLO, LONGER).token_ids
    )


def test_a_seed_repeats_an_answer_with_guesses_and_without(processor: Path) -> None:
    used = ChatSettings(SamplingSettings(temperature=1.2, seed=11), max_new_tokens=80)
    texts = [
        [token.id for token in tokens(model.run(HELLO, used))]
        for model in (guessing(processor), guessing(processor), ChatModel(processor))
    ]

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize(
    ("sampling", "learns"),
    [
        (SamplingSettings(temperature=0.0), False),
        (SamplingSettings(temperature=1.0, seed=3), False),
        (SamplingSettings(temperature=1.0), True),
    ],
)
def test_what_is_tried_depends_on_time_only_where_an_answer_need_not_repeat(
    processor: Path, sampling: SamplingSettings, learns: bool
) -> None:
    model = ChatModel(processor, can_try=True)
    model.say(HELLO, *model.ids("one two three four " * 8), END)

    model.finish(HELLO, ChatSettings(sampling))

    seen = vars(model.engine._model.odds)
    assert (seen != vars(Odds())) == learns


def test_an_answer_that_has_to_repeat_takes_the_same_runs_again(processor: Path) -> None:
    runs = []
    for _ in range(2):
        model = ChatModel(processor, can_try=True)
        model.say(HELLO, *model.ids("one two three four " * 8), END)
        for _ in range(2):
            del model.text.runs[:]
            model.finish(HELLO)
            runs.append(model.text.runs[-6:])

    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert max(runs[0]) > 1


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
@pytest.mark.parametrize(
    ("sampling", "repeats"),
    [
        (SamplingSettings(temperature=0.0), True),
        (SamplingSettings(temperature=1.0, seed=3), True),
        (SamplingSettings(temperature=1.0), False),
    ],
)
@pytest.mark.parametrize("speculate", ["off", "lookup", "auto"])
def test_a_quantised_answer_that_has_to_repeat_is_guessed_only_when_asked_for(
    processor: Path,
    precision: str,
    sampling: SamplingSettings,
    repeats: bool,
    speculate: Speculate,
) -> None:
    model = ChatModel(processor, can_try=True, precision=precision, speculate=speculate)
    model.say(HELLO, *model.ids("one two three four " * 8), END)

    usage = model.finish(HELLO, ChatSettings(sampling)).usage

    kept = speculate == "auto" and repeats and precision != "fp32"
    assert (usage.drafted_tokens > 0) == (speculate != "off" and not kept)
