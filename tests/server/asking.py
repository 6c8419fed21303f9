"""Asks a server in this process, as a client would over the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.testclient import TestClient

from q35chat.server.app import application
from q35chat.server.gate import Rules
from q35chat.server.service import Service

HOST = "http://127.0.0.1:8035"
OPEN = Rules()
GREEDY = {"temperature": 0}


class Asking:
    """One client of `service`."""

    def __init__(self, service: Service, rules: Rules = OPEN, **headers: str) -> None:
        app = application(service, rules)
        self.http = TestClient(
            app, base_url=HOST, raise_server_exceptions=False, headers=headers or None
        )
        self.service = service

    def post(self, path: str, body: object, status: int = 200) -> Any:
        """What is answered, which has this status."""
        response = self.http.post(path, json=body)
        assert response.status_code == status, response.text
        return response.json()

    def chat(self, text: str, **fields: Any) -> Any:
        """The answer to a question without chance in it."""
        return self.post("/v1/chat/completions", question(text, **fields))

    def chunks(self, path: str, body: Mapping[str, Any]) -> list[Any]:
        """The events of a stream, which ends as streams do."""
        response = self.http.post(path, json={**body, "stream": True})
        assert response.status_code == 200, response.text
        lines = [line for line in response.text.split("\n") if line.startswith("data: ")]
        data = [line.removeprefix("data: ") for line in lines]
        if data[-1] == "[DONE]":
            data.pop()
        return [json.loads(one) for one in data]


def question(text: str, **fields: Any) -> dict[str, Any]:
    """A request with one question."""
    return {"messages": [{"role": "user", "content": text}], **GREEDY, **fields}
