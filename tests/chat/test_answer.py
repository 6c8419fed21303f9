from __future__ import annotations

from collections.abc import Iterable

import pytest

from q35chat.chat.prompt.tokenizer import ChatTokenizer, ThinkTags
from q35chat.chat.turn.answer import AnswerText
from tests.doubles.chat_model import END, THINK, UNTHINK

TAGS = ThinkTags(THINK, UNTHINK)


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


def test_an_empty_thought_leaves_no_trace(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=True).say("\n\n</think>\n\nHi").end() == ("", "Hi")


def test_a_thought_that_never_ends_has_no_answer(tokenizer: ChatTokenizer) -> None:
    assert Reply(tokenizer, opened=True).say("so\nand\n").end() == ("so\nand", "")


def test_kind_says_where_the_next_token_belongs(tokenizer: ChatTokenizer) -> None:
    reply = Reply(tokenizer, opened=True)

    assert reply.text.kind == "reasoning"
    assert reply.say("a</think>").text.kind == "answer"


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
