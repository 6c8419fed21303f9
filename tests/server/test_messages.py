from __future__ import annotations

import base64
from typing import Any

from q35chat.chat.values import ChatSettings, SamplingSettings
from tests.doubles.chat_model import END, UNTHINK, ChatModel, picture, user
from tests.server.asking import GREEDY, Asking

PATH = "/v1/messages"
TOOL = {"name": "now", "description": "The time.", "input_schema": {"type": "object"}}


def hello(**fields: Any) -> dict[str, Any]:
    """A request with one question."""
    return {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64, **GREEDY} | fields


def test_a_question_is_answered(asking: Asking, model: ChatModel) -> None:
    model.say([user("Hello")], *model.ids("the red"), END)
    answer = asking.post(PATH, hello())
    assert answer["content"] == [{"type": "text", "text": "the red"}]
    assert answer["stop_reason"] == "end_turn"
    assert (
        answer["usage"]["input_tokens"]
        == asking.post(f"{PATH}/count_tokens", hello())["input_tokens"]
    )


def test_a_stream_has_blocks_of_thought_and_text(asking: Asking, model: ChatModel) -> None:
    settings = ChatSettings(sampling=SamplingSettings(temperature=0.0), thinking=True)
    ids = (*model.ids("the"), UNTHINK, *model.ids("red"), END)
    model.say([user("Hello")], *ids, settings=settings)
    thinking = {"type": "enabled", "budget_tokens": 32}
    events = asking.chunks(PATH, hello(thinking=thinking))
    assert [one["type"] for one in events if one["type"] != "content_block_delta"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
    assert "".join(one.get("thinking", "") for one in deltas) == "the"
    assert "".join(one.get("text", "") for one in deltas) == "red"


def test_a_stop_sequence_is_named(asking: Asking, model: ChatModel) -> None:
    model.say([user("Hello")], *model.ids("the red"), END)
    answer = asking.post(PATH, hello(stop_sequences=[" red"]))
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", " red")


def test_a_tool_is_used_and_its_result_is_read_with_its_picture(
    asking: Asking, model: ChatModel
) -> None:
    count = asking.post(f"{PATH}/count_tokens", hello(tools=[TOOL]))["input_tokens"]
    ids = (*model.ids('<tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>'), END)
    model.text.says = {count - 1 + place: token for place, token in enumerate(ids)}
    answer = asking.post(PATH, hello(tools=[TOOL]))
    (use,) = answer["content"]
    assert (use["type"], use["name"], use["input"]) == ("tool_use", "now", {"a": 1})
    assert answer["stop_reason"] == "tool_use"
    data = base64.b64encode(picture(28, 28).data).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    parts = [{"type": "text", "text": "12:00"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": parts}
    body = hello(tools=[TOOL], max_tokens=1)
    body["messages"] += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
    model.text.says = {}
    usage = asking.post(PATH, body)["usage"]
    assert usage["cache_read_input_tokens"] > 0
    assert usage["input_tokens"] > len(ids)


def test_instructions_may_be_blocks_and_errors_have_the_protocols_form(asking: Asking) -> None:
    system = [{"type": "text", "text": "the"}, {"type": "text", "text": "red"}]
    long = asking.post(f"{PATH}/count_tokens", hello(system=system))["input_tokens"]
    assert long > asking.post(f"{PATH}/count_tokens", hello())["input_tokens"]
    error = asking.post(PATH, {"messages": []}, 400)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
