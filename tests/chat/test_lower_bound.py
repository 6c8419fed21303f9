from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.prompt.tokenizer import ChatTokenizer
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
def test_no_text_has_fewer_tokens_than_its_lower_bound(tokenizer: ChatTokenizer, text: str) -> None:
    assert tokenizer.lower_bound(text) <= len(tokenizer.encode_literally(text.strip()))


def test_the_longest_token_of_the_vocabulary_is_the_measure(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.longest == len("<|vision_start|>")
    assert tokenizer.lower_bound("a" * 160) == 10


def test_a_text_that_cannot_fit_is_refused_without_tokenising_it(
    model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> list[int]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(ChatTokenizer, "encode", refused)
    fewest = model.capacity + 1
    most = "a" * model.capacity * model.engine.tokenizer.longest
    with pytest.raises(AssertionError, match="it was tokenised"):
        model.engine.plan([user(most)], GREEDY)
    with pytest.raises(CapacityError, match=rf"at least {fewest} slots, capacity 512: shorten it"):
        model.engine.plan([user(f"{most}a")], GREEDY)
    with pytest.raises(CapacityError, match=rf"at least {fewest} slots"):
        next(model.engine.run([user(f"{most}a")], GREEDY, lambda: False))


def test_an_old_turn_that_no_longer_fits_can_still_be_planned(model: ChatModel) -> None:
    first = user("a" * 100_000)
    answer = answered(model.finish([user("Hello")]))

    assert model.engine.plan([first, answer, user("more")], GREEDY).prompt_tokens > 100_000
