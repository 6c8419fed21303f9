from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doubles.chat_model import END, ChatModel, user
from tests.server.asking import GREEDY, Asking

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "now", "description": "The time.", "parameters": {}}


def test_a_text_is_answered(asking: Asking, model: ChatModel) -> None:
    model.say([user("Hello")], *model.ids("the red"), END)
    answer = asking.post(PATH, {"input": "Hello", **GREEDY})
    (item,) = answer["output"]
    assert (answer["status"], item["type"], item["role"]) == ("completed", "message", "assistant")
    assert item["content"][0]["text"] == "the red"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_events_come_in_order_and_say_the_same(asking: Asking, model: ChatModel) -> None:
    model.say([user("Hello")], *model.ids("the red"), END)
    events = asking.chunks(PATH, {"input": "Hello", **GREEDY})
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(one["type"].removeprefix("response.") for one in events))
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    deltas = [one["delta"] for one in events if one["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "the red"
    assert events[-1]["response"]["output"] == [events[-2]["item"]]


def test_a_call_goes_out_and_its_result_comes_in(asking: Asking, model: ChatModel) -> None:
    asked = {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    tools = {"messages": [{"role": "user", "content": "Hello"}], "tools": [TOOL]}
    prompt = asking.post("/tokenize", tools)["count"]
    written = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    ids = (*model.ids(written), END)
    model.text.says = {prompt - 1 + place: token for place, token in enumerate(ids)}
    body: dict[str, Any] = {"input": [asked], "tools": [TOOL], **GREEDY}
    (call,) = asking.post(PATH, body)["output"]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "now", "{}")
    events = asking.chunks(PATH, body)
    assert "response.function_call_arguments.done" in [one["type"] for one in events]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "12:00"}
    model.text.says = {}
    answer = asking.post(PATH, {**body, "input": [asked, call, result], "max_output_tokens": 1})
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] > prompt


def test_a_conversation_that_is_elsewhere_is_asked_for_whole(asking: Asking) -> None:
    error = asking.post(PATH, {"input": "a", "previous_response_id": "resp_1"}, 400)["error"]
    assert "nothing is stored" in error["message"]


def test_a_failure_in_a_stream_is_an_event(
    asking: Asking, model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(model.engine, "answer", broken)
    last = asking.chunks(PATH, {"input": "Hello"})[-1]
    assert last["type"] == "error"
    assert "secret" not in json.dumps(last)
