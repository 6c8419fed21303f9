from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest

from tests.server.asking import Asking, question

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize")
DEEP = b'{"messages": ' + b"[" * 100_000


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"\xff"', b'{"a": \xff}', DEEP, b'{"a": ' + b"9" * 5000 + b"}"],
)
def test_what_is_no_request_is_refused_in_one_line(asking: Asking, path: str, body: bytes) -> None:
    response = asking.http.post(path, content=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "\n" not in message
    assert "Traceback" not in message


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_is_too_large_is_not_read(asking: Asking, path: str) -> None:
    response = asking.http.post(path, content=b" " * (2 << 20))
    assert response.status_code == 413
    assert "1,048,576 bytes" in response.json()["error"]["message"]


WRONG: list[dict[str, Any]] = [
    {"messages": "Hello"},
    {"messages": []},
    {"messages": [3]},
    {"messages": [{"role": "robot", "content": "a"}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": [{"type": "audio"}]}]},
    {"messages": [{"role": "user", "content": "\ud800"}]},
    {"temperature": "hot"},
    {"temperature": -1},
    {"temperature": float("nan")},
    {"top_p": 2},
    {"top_k": 1.5},
    {"seed": "x"},
    {"n": 2},
    {"max_tokens": 0},
    {"stop": [1]},
    {"stop": ["a"] * 17},
    {"stream": "yes"},
    {"stream_options": 1},
    {"logprobs": True, "top_logprobs": 99},
    {"logit_bias": {"5": 1}},
    {"frequency_penalty": 1},
    {"reasoning_effort": "enormous"},
    {"chat_template_kwargs": {"enable_thinking": "yes"}},
    {"tools": [{"type": "retrieval"}]},
    {"tools": [{"type": "function", "function": {"name": ""}}]},
    {"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]},
    {"tool_choice": "required"},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema", "json_schema": {}}},
    {"user": 5},
]


@pytest.mark.parametrize("fields", WRONG, ids=json.dumps)
def test_a_field_that_is_wrong_is_named(asking: Asking, fields: dict[str, Any]) -> None:
    body = json.dumps({**question("Hello", max_tokens=1), **fields})
    response = asking.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert "\n" not in message
    assert any(word in message for word in (*fields, "content", "role", "U+D800", "name", "schema"))


def huge_png() -> bytes:
    """A PNG that claims 100,000 x 100,000 pixels."""
    body = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IEND\xaeB`\x82"


@pytest.mark.parametrize(
    "data", [b"no picture", b"", b"\x89PNG\r\n\x1a\n", huge_png(), b"\xff\xd8\xff" * 9]
)
def test_a_picture_that_is_none_is_refused(asking: Asking, data: bytes) -> None:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": parts}]
    error = asking.post("/v1/chat/completions", {"messages": messages}, 400)["error"]
    assert "picture" in error["message"]


def test_base64_that_is_none_is_refused(asking: Asking) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}}]
    messages = [{"role": "user", "content": parts}]
    asking.post("/v1/chat/completions", {"messages": messages}, 400)


def test_a_path_that_is_not_there_is_told(asking: Asking) -> None:
    assert asking.http.get("/v1/none").status_code == 404
    assert asking.http.get("/v1/chat/completions").status_code == 405
    assert asking.http.get("/v1/messages/none").json()["type"] == "error"
