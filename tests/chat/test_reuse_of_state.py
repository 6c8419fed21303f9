"""Whatever a user does, an engine that reuses its state says what a fresh one says."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.events import Finished, Token
from q35chat.chat.prompt.pictures import ModelPictures
from q35chat.chat.turn import reading
from q35chat.chat.values import ChatSettings, Turn
from tests.doubles.chat_model import GREEDY, ChatModel, answered, picture, user

SHORT = replace(GREEDY, max_new_tokens=6, thinking_budget=4)
WORDS = ("Hello", "the picture", "图片。", "and <|im_end|>", "  two\n\nlines ")
PICTURES = (picture(64, 64), picture(64, 96, "blue"), picture(96, 64, "green"))
LARGEST = 6 * 6 * 4
"""Bytes of the embeddings of the largest of them."""

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 4), st.sets(st.integers(0, 2), max_size=2)),
        st.tuples(st.just("edit"), st.integers(0, 4), st.sets(st.integers(0, 2), max_size=1)),
        st.tuples(st.just("regenerate"), st.just(0), st.just(set())),
        st.tuples(st.just("stop"), st.integers(0, 4), st.just(set())),
        st.tuples(st.just("continue"), st.just(0), st.just(set())),
        st.tuples(st.just("drop"), st.just(0), st.just(set())),
        st.tuples(st.just("think"), st.just(0), st.just(set())),
        st.tuples(st.just("ahead"), st.integers(0, 4), st.just(set())),
        st.tuples(st.just("system"), st.integers(0, 4), st.just(set())),
    ),
    min_size=2,
    max_size=7,
)


@dataclass
class User:
    """Acts on one engine and checks each answer against an engine that reads everything."""

    model: ChatModel
    turns: list[Turn] = field(default_factory=list)
    settings: ChatSettings = SHORT
    reused: int = 0

    def act(self, action: str, number: int, pictures: set[int]) -> None:
        question = user(WORDS[number], *(PICTURES[index] for index in sorted(pictures)))
        if action == "think":
            self.settings = replace(self.settings, thinking=not self.settings.thinking)
        elif action == "system":
            self.settings = replace(self.settings, system_prompt=WORDS[number])
        elif action == "send" or not self.turns:
            self.answer([*self.turns, question])
        elif action == "edit":
            place = 2 * (number % (len(self.turns) // 2))
            self.answer([*self.turns[:place], question])
        elif action == "regenerate":
            self.answer(self.turns[:-1])
        elif action == "stop":
            self.answer([*self.turns, question], stop_after=number)
        elif action == "continue":
            self.go_on()
        elif action == "ahead":
            parts = count()
            self.model.engine.read_ahead(self.turns, self.settings, lambda: next(parts) >= number)
        elif action == "drop" and len(self.turns) > 2:
            self.answer([*self.turns[2:], question])

    def answer(self, turns: list[Turn], stop_after: int | None = None) -> None:
        finished = self.checked(turns, stop_after)
        self.turns = [*turns, answered(finished)]

    def go_on(self) -> None:
        last = self.turns[-1]
        more = self.checked(self.turns, None)
        self.turns[-1] = replace(
            answered(more),
            text=last.text + more.text,
            reasoning=last.reasoning + more.reasoning,
            token_ids=(*last.token_ids, *more.token_ids),
        )

    def checked(self, turns: list[Turn], stop_after: int | None) -> Finished:
        fresh = ChatModel(self.model.processor)
        finished, expected = (
            _run(model, turns, self.settings, stop_after) for model in (self.model, fresh)
        )
        self.reused += finished.usage.reused_tokens
        same = ("reason", "text", "reasoning", "token_ids")
        assert [getattr(finished, name) for name in same] == [
            getattr(expected, name) for name in same
        ]
        return finished


def _run(
    model: ChatModel, turns: list[Turn], settings: ChatSettings, stop_after: int | None
) -> Finished:
    stop, shown = threading.Event(), 0
    for event in model.engine.run(turns, settings, stop.is_set):
        shown += isinstance(event, Token)
        if stop_after is not None and shown > stop_after:
            stop.set()
    assert isinstance(event, Finished)
    return event


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
@given(ACTIONS)
def test_any_sequence_of_actions_answers_like_a_fresh_engine(
    processor: Path, actions: list[tuple[str, int, set[int]]]
) -> None:
    someone = User(ChatModel(processor, capacity=2048))
    with mock.patch.object(reading, "PART", 2):
        for action in actions:
            someone.act(*action)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_follow_up_reads_the_visible_answer_and_the_question_only(
    processor: Path, thinking: bool
) -> None:
    someone = User(ChatModel(processor), settings=replace(SHORT, thinking=thinking))
    someone.act("send", 0, {0, 1})
    first = someone.model.engine.plan([*someone.turns, user("more")], someone.settings)
    before = someone.model.engine.plan(someone.turns[:1], someone.settings)

    assert before.prompt_tokens - first.reused_tokens < 10  # the header of the answer
    visible = len(someone.turns[1].token_ids)
    assert first.new_tokens < visible + 30


def test_regenerating_reads_only_the_header_of_the_answer(processor: Path) -> None:
    someone = User(ChatModel(processor))
    someone.act("send", 0, {0, 1})

    assert someone.model.engine.plan(someone.turns[:1], SHORT).new_tokens < 10


def test_editing_the_last_question_reads_only_that_question(processor: Path) -> None:
    someone = User(ChatModel(processor, capacity=1024))
    for _ in range(4):
        someone.act("send", 1, {1})

    plan = someone.model.engine.plan([*someone.turns[:-2], user("other")], SHORT)

    assert plan.new_tokens < 24


def test_any_earlier_turn_is_at_most_one_turn_away(processor: Path) -> None:
    someone = User(ChatModel(processor, capacity=2048))
    for number in range(5):
        someone.act("send", number, {0})
    longest = max(
        len(someone.model.engine.tokenizer.encode_literally(turn.text)) for turn in someone.turns
    )

    for place in range(0, 10, 2):
        plan = someone.model.engine.plan([*someone.turns[:place], user("other")], SHORT)
        assert plan.new_tokens < longest + 30


def test_any_earlier_turn_is_near_after_reading_everything_again(processor: Path) -> None:
    someone = User(ChatModel(processor, capacity=2048))
    for number in range(5):
        someone.act("send", number, {0})
    again = User(ChatModel(processor, capacity=2048), someone.turns)
    again.answer([*again.turns, user("more")])
    longest = max(
        again.model.engine.plan(again.turns[: place + 1], SHORT).prompt_tokens
        - again.model.engine.plan(again.turns[:place], SHORT).prompt_tokens
        for place in range(2, 10, 2)
    )

    for place in range(0, 10, 2):
        plan = again.model.engine.plan([*again.turns[:place], user("other")], SHORT)
        assert plan.new_tokens < max(longest, reading.SPACING) + 30


def test_snapshots_are_no_closer_than_they_need_to_be() -> None:
    ends = [10, 20, 64, 90, 140, 150, 300, 310]

    assert reading.spaced(ends, 0) == [64, 140, 300, 310]
    assert reading.spaced(ends, 100) == [300, 310]
    assert reading.spaced(ends, 305) == [310]
    assert reading.spaced([5, 9], 0) == [5, 9]


def test_going_on_costs_one_token(processor: Path) -> None:
    someone = User(ChatModel(processor))
    someone.act("stop", 2, set())

    assert someone.model.engine.plan(someone.turns, SHORT).new_tokens == 1
    someone.go_on()


def test_another_picture_in_the_same_place_is_read(processor: Path) -> None:
    someone = User(ChatModel(processor))
    someone.act("send", 0, {0})
    same_size = user(WORDS[0], picture(64, 64, "yellow"))

    plan = someone.model.engine.plan([same_size], SHORT)

    assert plan.reused_tokens < plan.prompt_tokens - plan.image_tokens
    someone.answer([same_size])


def test_the_vision_graph_runs_once_a_picture(processor: Path) -> None:
    someone = User(ChatModel(processor, capacity=2048))
    for _ in range(3):
        someone.act("send", 0, {0, 1})
    someone.act("system", 0, set())
    someone.act("send", 1, {0})

    assert someone.model.vision.pictures == 2


def test_more_pictures_than_their_cache_holds_are_encoded_once_each(
    processor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red, blue, green = PICTURES
    turns, anew = [user("Hello", blue, green, red, blue)], replace(SHORT, system_prompt="the")
    monkeypatch.setattr(
        "q35chat.chat.engine.ModelPictures", partial(ModelPictures, cache_bytes=LARGEST)
    )
    model = ChatModel(processor)
    model.finish([user("Hello", red)])

    found = model.finish(turns, anew)

    assert model.vision.pictures == len(PICTURES)
    monkeypatch.undo()
    assert found.token_ids == ChatModel(processor).finish(turns, anew).token_ids


def test_without_room_for_snapshots_everything_is_read_again(processor: Path) -> None:
    someone = User(ChatModel(processor, snapshot_bytes=0))
    someone.act("send", 0, {0})
    someone.act("regenerate", 0, set())

    assert someone.reused == 0


def test_a_turn_allocates_the_same_however_long_the_conversation(processor: Path) -> None:
    someone = User(ChatModel(processor, capacity=2048, snapshot_bytes=4096))
    allocated = [0]
    for _ in range(20):
        someone.act("send", 1, set())
        allocated.append(someone.model.text.allocated)

    per_turn = [after - before for before, after in pairwise(allocated)]
    assert len({*per_turn[2:]}) == 1
