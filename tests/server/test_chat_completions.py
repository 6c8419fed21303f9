from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.server.service import plainer
from tests.doubles.chat_model import END, UNTHINK, ChatModel, picture, user
from tests.server.asking import GREEDY, Asking, question

PATH = "/v1/chat/completions"


def say(model: ChatModel, asked: str, answer: str) -> None:
    """Make the model answer a question."""
    model.say([user(asked)], *model.ids(answer), END)


def test_a_question_is_answered_with_its_usage(asking: Asking, model: ChatModel) -> None:
    say(model, "Hello", "the red picture")
    answer = asking.chat("Hello")
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "the red picture"}
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    usage = answer["usage"]
    assert usage["completion_tokens"] == len(model.ids("the red picture")) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_stream_has_the_same_text_and_its_usage_last(asking: Asking, model: ChatModel) -> None:
    say(model, "Hello", "the red picture")
    body = question("Hello", stream_options={"include_usage": True})
    *chunks, last = asking.chunks(PATH, body)
    told = [one["choices"][0]["delta"].get("content", "") for one in chunks]
    assert "".join(told) == "the red picture"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(model.ids("the red picture")) + 1
    assert {one["id"] for one in chunks} == {last["id"]}


def test_reasoning_has_both_names_in_both_forms(asking: Asking, model: ChatModel) -> None:
    settings = ChatSettings(sampling=SamplingSettings(temperature=0.0), thinking=True)
    ids = (*model.ids("the"), UNTHINK, *model.ids(" red"), END)
    model.say([user("Hello")], *ids, settings=settings)
    body = question("Hello", chat_template_kwargs={"enable_thinking": True})
    message = asking.post(PATH, body)["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "the"
    assert message["content"] == " red"
    deltas = [one["choices"][0]["delta"] for one in asking.chunks(PATH, body)]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == "the"


def test_all_tokens_count_for_the_limit_and_half_of_them_stay_for_the_answer(
    asking: Asking,
) -> None:
    body = question("Hello", max_completion_tokens=12, reasoning_effort="high")
    body |= {"thinking_budget": 6}
    usage = asking.post(PATH, body)["usage"]
    assert usage["completion_tokens"] <= 12
    assert usage["completion_tokens_details"]["reasoning_tokens"] < 12


def test_a_cut_answer_says_length(asking: Asking, model: ChatModel) -> None:
    say(model, "Hello", "the red picture")
    answer = asking.chat("Hello", max_tokens=1)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 1


def test_a_text_that_stops_is_not_told(asking: Asking, model: ChatModel) -> None:
    say(model, "Hello", "the red picture")
    choice = asking.chat("Hello", stop=[" picture"])["choices"][0]
    assert choice["message"]["content"] == "the red"
    assert choice["finish_reason"] == "stop"


def test_each_token_comes_with_its_odds(asking: Asking, model: ChatModel) -> None:
    say(model, "Hello", "the red")
    content = asking.chat("Hello", logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]
    tokens = content["content"]
    assert "".join(one["token"] for one in tokens) == "the red"
    for one in tokens:
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0
        assert one["token"] == one["top_logprobs"][0]["token"]
        assert bytes(one["bytes"]).decode() == one["token"]
        assert len(one["top_logprobs"]) == 2


def test_a_seed_repeats_an_answer(asking: Asking) -> None:
    body = question("Hello", seed=7, max_tokens=8) | {"temperature": 2.0}
    first, again = (asking.post(PATH, body)["choices"][0]["message"] for _ in range(2))
    assert first == again


def test_instructions_are_merged_where_the_template_wants_one(asking: Asking) -> None:
    roles = (("system", "the"), ("developer", "red"), ("user", "Hello"), ("system", "last"))
    messages = [{"role": role, "content": text} for role, text in roles]
    prompt = asking.post("/apply-template", {"messages": messages})["prompt"]
    assert prompt.startswith("<|im_start|>system\nthe\n\nred\n\nlast<|im_end|>\n")
    assert prompt.count("<|im_start|>system") == 1


def test_what_a_tool_gave_is_a_users_text_where_the_template_knows_no_tools() -> None:
    turns = (user("Hello"), Turn("assistant", "I look."), Turn("tool", "12:00"), system("red"))
    assert plainer(turns) == (
        system("red"),
        user("Hello"),
        Turn("assistant", "I look."),
        user("<tool_response>\n12:00\n</tool_response>"),
    )


def system(text: str) -> Turn:
    return Turn("system", text)


def test_a_picture_is_read_from_its_data(asking: Asking) -> None:
    data = base64.b64encode(picture(28, 28).data).decode()
    parts = [
        {"type": "text", "text": "the"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2, **GREEDY}
    seen = asking.post(PATH, body)["usage"]["prompt_tokens"]
    assert seen > asking.chat("the", max_tokens=2)["usage"]["prompt_tokens"]


def test_a_picture_elsewhere_is_not_fetched(asking: Asking) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]
    error = asking.post(PATH, {"messages": [{"role": "user", "content": parts}]}, 400)["error"]
    assert "not fetched" in error["message"]


def test_too_much_to_read_is_refused_with_the_numbers(asking: Asking) -> None:
    error = asking.post(PATH, question("the " * 3000), 400)["error"]
    assert error["code"] == "context_length_exceeded"
    assert "capacity 2,048" in error["message"]


def test_a_failure_is_told_without_its_details_and_the_next_request_is_answered(
    asking: Asking, model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(model.engine, "answer", broken)
        error = asking.post(PATH, question("Hello"), 500)["error"]
        assert "secret" not in json.dumps(error)
        (streamed,) = (one for one in asking.chunks(PATH, question("Hello")) if "error" in one)
        assert streamed == {"error": error}
    assert asking.chat("Hello", max_tokens=1)["usage"]["completion_tokens"] == 1
