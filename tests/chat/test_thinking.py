from __future__ import annotations

import pytest

from q35chat.chat.prompt.tokenizer import ChatTokenizer, ThinkTags
from q35chat.chat.turn.answer import ThinkParser
from tests.doubles.chat_model import THINK, UNTHINK

TAGS = ThinkTags(open=1, close=2)


@pytest.mark.parametrize(
    ("ids", "left_open"),
    [([], False), ([7], False), ([7, 1, 7], True), ([1, 7, 2, 7], False), ([1, 2, 1], True)],
)
def test_a_prompt_leaves_a_thought_open_if_its_last_tag_opens(
    ids: list[int], left_open: bool
) -> None:
    assert TAGS.left_open(ids) == left_open


def test_tags_are_found_in_the_vocabulary(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.tags == ThinkTags(THINK, UNTHINK)


def test_a_vocabulary_without_tags_never_thinks() -> None:
    parser = ThinkParser(ThinkTags(None, None), opened=False)

    assert [parser.push(token) for token in (1, 2)] == ["text", "text"]
    assert parser.kind == "answer"


def test_a_thought_opens_at_the_start_only_and_closes_once() -> None:
    parser = ThinkParser(TAGS, opened=False)

    assert [parser.push(token) for token in (1, 1, 2, 2, 1)] == [
        "open",
        "text",
        "close",
        "text",
        "text",
    ]
