"""Tokens guessed ahead, right or wrong, change nothing that a turn tells or leaves behind.

They are looked up in what was said before, or computed by the model's own head.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.events import Event, Finished, Token
from q35chat.chat.turn import reading
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.engine import speculation
from q35chat.engine.speculation import Odds
from q35chat.errors import BundleError
from q35chat.user_input import Speculate
from tests.chat.test_reuse_of_state import ACTIONS, WORDS, User, _run
from tests.doubles.chat_model import END, GREEDY, ChatModel, picture, tokens, user
from tests.doubles.guesses import Guesses

LONGER = replace(GREEDY, max_new_tokens=14, thinking_budget=8)
HELLO = [user("Hello")]
CHANCE = SamplingSettings(temperature=1.0)
SAMPLINGS = (SamplingSettings(temperature=0.0), SamplingSettings(temperature=1.0, seed=3), CHANCE)


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


def guessing(
    processor: Path, capacity: int = 2048, speculate: Speculate = "lookup", *, head: bool = False
) -> ChatModel:
    return ChatModel(
        processor, capacity=capacity, can_try=True, speculate=speculate, with_head=head
    )


def headed(processor: Path, speculate: Speculate = "mtp", capacity: int = 512) -> ChatModel:
    return guessing(processor, capacity, speculate, head=True)


def some(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return settings(
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        max_examples=examples,
        deadline=None,
    )


@some(40)
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


@some(20)
@given(st.integers(1, 13), st.booleans())
def test_the_last_slot_of_the_capacity_is_used(processor: Path, room: int, head: bool) -> None:
    needed = ChatModel(processor).engine.plan(HELLO, GREEDY).prompt_tokens
    model = guessing(processor, needed + room, "mtp" if head else "lookup", head=head)
    model.say(HELLO, *model.ids("abababababababababab"))

    finished = model.finish(HELLO)

    assert (finished.reason, finished.text) == ("capacity", "abababababababababab"[: room + 1])
    assert finished.usage.capacity_free == 0


@some(15)
@given(st.integers(1, 15))
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


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("head", [False, True])
def test_what_is_tried_depends_on_time_only_where_an_answer_need_not_repeat(
    processor: Path, sampling: SamplingSettings, head: bool
) -> None:
    model = guessing(processor, 512, "auto", head=head)
    model.say(HELLO, *model.ids("one two three four " * 8), END)

    model.finish(HELLO, ChatSettings(sampling))

    parts = model.engine._model
    seen, first = (parts.head_odds if head else parts.odds), Odds(head=head)
    assert (vars(seen) != vars(first)) == (sampling == CHANCE)


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


@some(20)
@given(
    st.sampled_from(["fp32", "int8", "int4"]),
    st.sampled_from(SAMPLINGS),
    st.sampled_from(["off", "lookup", "auto"]),
)
def test_a_rounded_answer_that_has_to_repeat_is_guessed_only_when_asked_for(
    processor: Path,
    precision: str,
    sampling: SamplingSettings,
    speculate: Speculate,
) -> None:
    model = ChatModel(processor, can_try=True, precision=precision, speculate=speculate)
    model.say(HELLO, *model.ids("one two three four " * 8), END)

    usage = model.finish(HELLO, ChatSettings(sampling)).usage

    kept = speculate == "auto" and sampling != CHANCE and precision != "fp32"
    assert (usage.drafted_tokens > 0) == (speculate != "off" and not kept)


@some(25)
@given(ACTIONS)
def test_any_sequence_of_actions_answers_like_a_fresh_engine_without_a_head(
    processor: Path, actions: list[tuple[str, int, set[int]]]
) -> None:
    someone = User(headed(processor, capacity=2048), settings=LONGER)
    with mock.patch.object(reading, "PART", 2):
        for action in actions:
            someone.act(*action)


def test_right_guesses_save_runs_of_the_model(processor: Path) -> None:
    model = headed(processor)
    model.say(HELLO, *model.ids("quite another answer than before 图片。"), END)
    model.text.runs.clear()

    finished = model.finish(HELLO)

    assert finished.text == "quite another answer than before 图片。"
    assert finished.usage.accepted_tokens > len(finished.token_ids) / 3
    assert len(model.text.runs) < len(finished.token_ids) * 0.7
    assert sum(finished.usage.timings.predict_ms) > 0


def test_a_picture_in_the_question_reaches_the_head(processor: Path) -> None:
    turns = [user("What is it?", picture(64, 64))]
    plain, model = ChatModel(processor), headed(processor)

    assert model.finish(turns, LONGER).token_ids == plain.finish(turns, LONGER).token_ids
    assert model.head.runs


@pytest.mark.parametrize("speculate", ["off", "lookup", "auto", "mtp"])
def test_the_head_is_loaded_only_where_it_may_be_used(
    processor: Path, speculate: Speculate
) -> None:
    model = headed(processor, speculate)

    assert ("mtp.onnx" in model.opened) == (speculate in ("auto", "mtp"))


@pytest.mark.parametrize(("speculate", "guesses"), [("auto", False), ("lookup", True)])
def test_a_mixture_of_experts_guesses_only_where_it_is_asked_to(
    processor: Path, speculate: Speculate, guesses: bool
) -> None:
    model = ChatModel(processor, can_try=True, speculate=speculate, with_head=True, experts=8)
    repeated = model.ids("over and over and ") * 8
    model.say([user("again")], *repeated)
    usage = model.finish([user("again")], LONGER).usage
    assert "mtp.onnx" not in model.opened
    assert (usage.drafted_tokens > 0) == guesses


def test_a_bundle_without_a_head_says_so_when_it_is_asked_for(processor: Path) -> None:
    with pytest.raises(BundleError, match="no head for guessing tokens: export it with --mtp"):
        ChatModel(processor, can_try=True, speculate="mtp")
