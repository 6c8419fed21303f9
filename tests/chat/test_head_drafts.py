"""Tokens that the model's own head guesses change nothing that a turn tells or leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings

from q35chat.chat.turn import reading
from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.engine.speculation import Odds
from q35chat.errors import BundleError
from q35chat.user_input import Speculate
from tests.chat.test_reuse_of_state import ACTIONS, User
from tests.doubles.chat_model import END, GREEDY, ChatModel, picture, user

LONGER = replace(GREEDY, max_new_tokens=14, thinking_budget=8)
HELLO = [user("Hello")]


def headed(processor: Path, speculate: Speculate = "mtp", **more: int) -> ChatModel:
    return ChatModel(processor, can_try=True, with_head=True, speculate=speculate, **more)  # type: ignore[arg-type]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None
)
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

    assert bool(model.head.caches or model.engine._model.decoder.head) == (
        speculate in ("auto", "mtp")
    )


def test_a_bundle_without_a_head_says_so_when_it_is_asked_for(processor: Path) -> None:
    with pytest.raises(BundleError, match="no head for guessing tokens: export it with --mtp"):
        ChatModel(processor, can_try=True, speculate="mtp")


@pytest.mark.parametrize(
    ("sampling", "learns"),
    [(SamplingSettings(temperature=0.0), False), (SamplingSettings(temperature=1.0), True)],
)
def test_what_the_head_is_worth_is_remembered_where_answers_need_not_repeat(
    processor: Path, sampling: SamplingSettings, learns: bool
) -> None:
    model = headed(processor, "auto")
    model.say(HELLO, *model.ids("one two three four"), END)

    model.finish(HELLO, ChatSettings(sampling))

    seen = vars(model.engine._model.head_odds)
    assert (seen != vars(Odds(head=True))) == learns


@pytest.mark.parametrize("room", range(1, 9))
def test_the_last_slot_of_the_capacity_is_used(processor: Path, room: int) -> None:
    needed = ChatModel(processor).engine.plan(HELLO, GREEDY).prompt_tokens
    model = headed(processor, capacity=needed + room)
    model.say(HELLO, *model.ids("abcdefghijklmnop"))

    finished = model.finish(HELLO)

    assert (finished.reason, finished.text) == ("capacity", "abcdefghijklmnop"[: room + 1])
    assert finished.usage.capacity_free == 0
