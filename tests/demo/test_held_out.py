from __future__ import annotations

import random
import re
from itertools import pairwise

from tools.demo_model import memory_talk
from tools.demo_model.dialogues import training_conversation
from tools.demo_model.held_out import (
    Question,
    held_out_conversations,
    held_out_memory_questions,
    held_out_picture_questions,
)
from tools.demo_model.phrases import kept_for_measuring


def _texts(question: Question) -> list[str]:
    return [str(message["content"]) for message in question.messages]


def test_every_expected_answer_passes_its_own_check() -> None:
    questions = held_out_picture_questions(200) + held_out_memory_questions(200)
    assert [q.expected for q in questions if not q.check(q.expected)] == []


def test_an_answer_to_another_question_fails_nearly_always() -> None:
    questions = held_out_memory_questions(100)
    passed = sum(a.check(b.expected) for a, b in pairwise(questions))
    assert passed <= 6


def test_empty_and_evasive_answers_fail() -> None:
    questions = held_out_picture_questions(100) + held_out_memory_questions(100)
    assert [q.expected for q in questions if q.check("")] == []
    evasive = "I cannot say that."
    wrongly = [q for q in questions if q.check(evasive)]
    assert all("no" in q.expected.lower() for q in wrongly)


def test_the_same_seed_gives_the_same_questions() -> None:
    one, two = held_out_picture_questions(12), held_out_picture_questions(12)
    assert [_texts(q) for q in one] == [_texts(q) for q in two]
    assert [p.tobytes() for q in one for p in q.pictures] == [
        p.tobytes() for q in two for p in q.pictures
    ]
    assert [_texts(q) for q in held_out_picture_questions(12, seed=1)] != [_texts(q) for q in one]


def test_measured_names_and_numbers_are_never_trained() -> None:
    rng = random.Random(0)
    for kind in ("name", "number"):
        for measuring in (True, False):
            values = [memory_talk.new_value(rng, kind, measuring) for _ in range(200)]
            assert {kept_for_measuring(value) for value in values} == {measuring}


def test_training_tells_no_value_that_is_kept_for_measuring() -> None:
    told = []
    for index in range(300):
        for turn in training_conversation(f"train/test/{index}").turns:
            told += re.findall(r"I will remember (\d+)\.", turn.answer)
            told += re.findall(r"Nice to meet you, (\w+)!", turn.answer)
    assert len(told) > 50
    assert [value for value in told if kept_for_measuring(value)] == []


def test_mixed_conversations_are_long_and_end_with_a_question_of_the_user() -> None:
    for question in held_out_conversations(10):
        users = [message for message in question.messages if message["role"] == "user"]
        assert 6 <= len(users) <= 12
        assert question.messages[-1]["role"] == "user"


def test_a_wrong_place_or_colour_is_wrong() -> None:
    described = [q for q in held_out_picture_questions(120) if q.expected.startswith("I see a ")]
    assert described
    swap = {"red": "blue", "blue": "red", "green": "red", "yellow": "red", "purple": "red"}
    for question in described:
        other = re.sub(
            "red|blue|green|yellow|purple", lambda m: swap[m[0]], question.expected, count=1
        )
        if other != question.expected:
            assert not question.check(other), question.expected
