from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.prompt.tokenizer import ChatTokenizer, Detokenizer, token_bytes, whole_characters
from tests.doubles.chat_model import END, SHAPE, THINK

ONCE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None
)


def pieces(tokenizer: ChatTokenizer, ids: list[int]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(token) for token in ids), stream.flush()]


def full_decode(tokenizer: ChatTokenizer, ids: list[int]) -> str:
    inner: Any = tokenizer._tokenizer
    text: str = inner.decode(ids, skip_special_tokens=True)
    return text


@ONCE
@given(st.lists(st.integers(0, SHAPE.vocab - 1)))
def test_joined_pieces_are_the_full_decode(tokenizer: ChatTokenizer, ids: list[int]) -> None:
    assert "".join(pieces(tokenizer, ids)) == full_decode(tokenizer, ids)


@ONCE
@given(st.text())
def test_a_text_comes_back(tokenizer: ChatTokenizer, text: str) -> None:
    ids = tokenizer.encode_literally(text)

    assert "".join(pieces(tokenizer, ids)) == full_decode(tokenizer, ids)
    assert "\ufffd" not in "".join(pieces(tokenizer, ids)) or "\ufffd" in text


def test_half_a_character_is_never_shown(tokenizer: ChatTokenizer) -> None:
    ids = tokenizer.encode("猫🐈é")
    shown = pieces(tokenizer, ids)

    assert len(ids) == 9
    assert [piece for piece in shown if piece] == ["猫", "🐈", "é"]


def test_a_character_left_unfinished_is_marked_by_the_flush_only(tokenizer: ChatTokenizer) -> None:
    ids = tokenizer.encode("a猫")[:-1]

    assert pieces(tokenizer, ids) == ["a", "", "", "\ufffd"]
    assert whole_characters(tokenizer, ids) == "a"


def test_special_tokens_and_ids_without_a_spelling_are_silent(tokenizer: ChatTokenizer) -> None:
    assert token_bytes(tokenizer, END) == b""
    assert token_bytes(tokenizer, SHAPE.vocab - 1) == b""
    assert token_bytes(tokenizer, THINK) == b"<think>"
