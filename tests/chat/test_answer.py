from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from q35chat.chat.events import Finished
from q35chat.chat.prompt.tokenizer import (
    ChatTokenizer,
    Detokenizer,
    ThinkTags,
    token_bytes,
    whole_characters,
)
from q35chat.chat.turn.answer import AnswerText, StopMatcher
from tests.doubles.chat_model import (
    END,
    GREEDY,
    SHAPE,
    THINK,
    UNTHINK,
    ChatModel,
    tokens,
    user,
)

ONCE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None
)


class Reply:
    """An answer fed from text; `shown` is what each token released."""

    def __init__(
        self, tokenizer: ChatTokenizer, *, opened: bool, stops: Iterable[str] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self.text = AnswerText(tokenizer, opened=opened, stops=tuple(stops))
        self.shown: dict[str, str] = {"reasoning": "", "answer": ""}

    def say(self, text: str) -> Reply:
        for token in self.tokenizer.encode(text):
            piece = self.text.push(token)
            self.shown[piece.kind] += piece.text
        return self

    def end(self) -> tuple[str, str]:
        piece = self.text.flush()
        self.shown[piece.kind] += piece.text
        assert (self.shown["reasoning"], self.shown["answer"]) == (
            self.text.reasoning,
            self.text.text,
        )
        return self.text.reasoning, self.text.text


def test_without_thinking_all_is_answer(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=False).say("\nHello the\n").end() == ("", "\nHello the\n")


def test_a_thought_opened_by_the_prompt_ends_at_its_tag(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=True).say("Let me see.\n</think>\n\nThe picture is red.")

    assert reply.end() == ("Let me see.", "The picture is red.")


def test_a_thought_may_be_opened_by_the_model_itself(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=False).say("<think>\na\n\nb\n</think>\n\nc\n")

    assert reply.end() == ("a\n\nb", "c\n")


def test_tags_in_the_middle_of_an_answer_are_text(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=False).say("Use <think> and </think>.")

    assert reply.end() == ("", "Use <think> and </think>.")


def test_a_thought_opens_at_the_start_only_and_closes_once(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=False).say("<think><think>a</think></think>b<think>")

    assert reply.end() == ("<think>a", "</think>b<think>")


def test_an_empty_thought_leaves_no_trace(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=True).say("\n\n</think>\n\nHi").end() == ("", "Hi")


def test_a_thought_that_never_ends_has_no_answer(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=True).say("so\nand\n").end() == ("so\nand", "")


def test_in_a_vocabulary_without_think_tags_nothing_is_reasoning(
    processor: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(processor, tmp_path / "processor"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("think>", "other>"), encoding="utf-8")
    model, turns = ChatModel(folder), [user("Hello")]

    for choice in (GREEDY, replace(GREEDY, thinking=True)):
        for text in ("<think>a</think>b", "<other>a</other>b"):
            model.say(turns, *model.ids(text), END, settings=choice)
            events = model.run(turns, choice)
            assert {token.kind for token in tokens(events)} == {"answer"}
            last = events[-1]
            assert isinstance(last, Finished)
            assert (last.text, last.reasoning, last.usage.reasoning_tokens) == (text, "", 0)


def test_special_tokens_never_reach_the_text(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=False).say("a<|im_start|><|image_pad|>b").end() == ("", "ab")


def test_stop_strings_end_the_answer_but_not_the_reasoning(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=True, stops=["\n", "red"]).say("a\nred b</think>\n\nis red!")

    assert reply.text.stopped
    assert reply.end() == ("a\nred b", "is ")


def test_a_held_start_of_a_stop_string_comes_out_at_the_end(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=False, stops=["red!"]).say("is re")

    assert reply.shown["answer"] == "is "
    assert reply.end() == ("", "is re")


def test_half_a_character_at_the_end_is_dropped(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=False)
    for token in tokenizer.encode("a猫")[:-1]:
        reply.shown["answer"] += reply.text.push(token).text

    assert reply.end() == ("", "a")


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("text", ["\n\na猫\n\nb\n</think>\n\n\nc🐈d", "\n<think>", "red!red!"])
def test_an_answer_gone_on_with_anywhere_reads_like_one(
    tokenizer: ChatTokenizer, text: str, opened: bool
) -> None:
    ids = [*tokenizer.encode(text), END]
    whole = Reply(tokenizer, opened=opened, stops=["red?"]).say(text).end()

    for cut in range(len(ids)):
        first = AnswerText(tokenizer, opened=opened, stops=["red?"])
        for token in ids[:cut]:
            first.push(token)
        first.flush()
        second = AnswerText(tokenizer, opened=opened, stops=["red?"])
        second.resume(ids[:cut])
        for token in ids[cut:]:
            second.push(token)
        second.flush()

        assert (first.reasoning + second.reasoning, first.text + second.text) == whole


def pieces(tokenizer: ChatTokenizer, ids: list[int]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(token) for token in ids), stream.flush()]


@cache
def _transformers_own(folder: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)


def full_decode(tokenizer: ChatTokenizer, ids: list[int]) -> str:
    inner = _transformers_own(tokenizer._which[0])
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
    assert tokenizer.tags == ThinkTags(THINK, UNTHINK)
    assert token_bytes(tokenizer, END) == b""
    assert token_bytes(tokenizer, SHAPE.vocab - 1) == b""
    assert token_bytes(tokenizer, THINK) == b"<think>"


def stream(stops: list[str], *parts: str) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(part) for part in parts]
    return [*shown, matcher.flush()], matcher.stopped


def test_a_possible_start_is_held_until_it_is_known() -> None:
    assert stream(["END"], "a E", "N", "x") == (["a ", "", "ENx", ""], False)


def test_the_first_of_several_stops_counts() -> None:
    assert stream(["cd", "b"], "abcd") == (["a", ""], True)


def test_an_empty_stop_is_none() -> None:
    assert stream([""], "a") == (["a", ""], False)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=3), max_size=12),
)
def test_any_split_shows_the_text_before_a_stop_and_nothing_after_it(
    stops: list[str], parts: list[str]
) -> None:
    text = "".join(parts)
    places = [text.find(stop) for stop in stops if stop in text]

    shown, stopped = stream(stops, *parts)

    assert stopped == bool(places)
    assert len("".join(shown)) <= len(text)
    assert text.startswith("".join(shown))
    assert not any(stop in "".join(shown) for stop in stops)
    if not places:
        assert "".join(shown) == text
