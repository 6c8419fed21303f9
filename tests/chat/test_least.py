from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.prompt.tokenizer import ChatTokenizer, TokenLowerBound
from q35chat.errors import CapacityError
from tests.doubles.chat_model import GREEDY, ChatModel, answered, user

PIECES = [
    "a",
    " the",
    "assistant",
    "图片",
    "e\u0301",
    "\u1112\u1161\u11ab",
    " ",
    "\n",
    "🐈",
    "<|im_end|>",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_has_fewer_tokens_than_the_least(tokenizer: ChatTokenizer, text: str) -> None:
    assert TokenLowerBound(tokenizer).of(text) <= len(tokenizer.encode_literally(text.strip()))


def test_the_longest_token_of_the_vocabulary_is_the_measure(tokenizer: ChatTokenizer) -> None:
    least = TokenLowerBound(tokenizer)

    assert least.longest == len("<|vision_start|>")
    assert least.of("a" * 160) == 10


def test_a_text_that_cannot_fit_is_refused_without_tokenising_it(
    model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> list[int]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(ChatTokenizer, "encode", refused)
    huge = [user("a" * 1_000_000)]

    with pytest.raises(CapacityError, match=r"at least 62,500 slots, capacity 512: shorten it"):
        model.engine.plan(huge, GREEDY)
    with pytest.raises(CapacityError, match=r"at least 62,500 slots"):
        next(model.engine.run(huge, GREEDY, lambda: False))


def test_only_what_cannot_fit_is_refused(tokenizer: ChatTokenizer) -> None:
    least = TokenLowerBound(tokenizer)
    most = "a" * least.longest * 64

    least.check(most, capacity=64)
    with pytest.raises(CapacityError, match="at least 65 slots, capacity 64"):
        least.check(f"{most}a", capacity=64)


def test_an_old_turn_that_no_longer_fits_can_still_be_planned(model: ChatModel) -> None:
    first = user("a" * 100_000)
    answer = answered(model.finish([user("Hello")]))

    assert model.engine.plan([first, answer, user("more")], GREEDY).prompt_tokens > 100_000
