from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.server.asking import Asking, question

PATH = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"red": {"type": "boolean"}, "size": {"enum": [1, 2]}},
    "required": ["red", "size"],
    "additionalProperties": False,
}


def with_schema(schema: object, **fields: Any) -> dict[str, Any]:
    """A question whose answer shall fit a schema."""
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return question("Hello", response_format=wanted, **fields)


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_fits_its_schema_whatever_the_model_would_say(asking: Asking, seed: int) -> None:
    body = with_schema(SCHEMA, seed=seed) | {"temperature": 5.0}
    choice = asking.post(PATH, body)["choices"][0]
    found = json.loads(choice["message"]["content"])
    assert set(found) == {"red", "size"}
    assert found["size"] in (1, 2)
    assert choice["finish_reason"] == "stop"


def test_a_thought_is_free_and_the_answer_is_not(asking: Asking) -> None:
    body = with_schema({"enum": ["red"]}, thinking_budget=4)
    message = asking.post(PATH, body)["choices"][0]["message"]
    assert message["content"].strip() == '"red"'


def test_a_call_can_be_demanded(asking: Asking) -> None:
    parameters = {**SCHEMA, "properties": {**SCHEMA["properties"]}}  # type: ignore[dict-item]
    tool = {"type": "function", "function": {"name": "paint", "parameters": parameters}}
    for choice in ("required", {"type": "function", "function": {"name": "paint"}}):
        body = question("Hello", tools=[tool], tool_choice=choice)
        answer = asking.post(PATH, body)["choices"][0]
        (call,) = answer["message"]["tool_calls"]
        assert call["function"]["name"] == "paint"
        assert set(json.loads(call["function"]["arguments"])) == {"red", "size"}
        assert answer["finish_reason"] == "tool_calls"


def test_a_schema_that_cannot_be_kept_is_refused(asking: Asking) -> None:
    for schema, said in (
        ({"type": "nothing"}, "JSON schema"),
        ({"$ref": "#"}, "the JSON schema cannot be kept: no answer fits it"),
    ):
        assert said in asking.post(PATH, with_schema(schema), 400)["error"]["message"]


def test_an_answer_is_a_text_of_a_grammar(asking: Asking) -> None:
    wanted = {"type": "grammar", "syntax": "lark", "definition": 'start: "red" | "blue"'}
    message = asking.post(PATH, question("Hello", response_format=wanted))["choices"][0]["message"]
    assert message["content"] in {"red", "blue"}
    for change, said in (
        ({"syntax": "gbnf"}, "the syntax of a grammar is lark"),
        ({"definition": "start: x"}, "the grammar cannot be kept"),
        ({"definition": "start: start start"}, "the grammar cannot be kept: no answer fits it"),
        ({"definition": 3}, "definition"),
    ):
        body = question("Hello", response_format=wanted | change)
        assert said in asking.post(PATH, body, 400)["error"]["message"]


def test_without_the_library_one_line_says_what_to_install(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    error = asking.post(PATH, with_schema(SCHEMA), 400)["error"]
    assert "pip install llguidance" in error["message"]
