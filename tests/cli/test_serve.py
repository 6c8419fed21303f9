"""`q35chat serve`: what is refused before anything is served, and a server that is told to end."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request
from io import StringIO

import pytest

from q35chat import cli
from q35chat.commands.console import Console
from tests.campaigns.server import address
from tests.cli.processes import running
from tests.support.exported import random_bundle


def refused(*arguments: str) -> str:
    """What is said of a command line that is wrong."""
    said = StringIO()
    assert cli.run(["serve", *arguments], Console(StringIO(), said)) == 2
    return said.getvalue()


@pytest.fixture(autouse=True)
def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("Q35CHAT_API_KEY", raising=False)


def test_other_machines_need_a_key() -> None:
    assert "needs a key" in refused("--host", "0.0.0.0")
    assert "empty" in refused("--api-key", " ")


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1 port {port}" in refused("--port", str(port))


def test_a_server_that_is_told_to_end_ends_its_streams(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    bundle = random_bundle(tmp_path_factory)
    line = (sys.executable, "-m", "q35chat", "serve", "--port", "0", "--model-dir", str(bundle))
    with running(line) as process:
        endless = {"type": "array", "items": {"type": "integer"}, "minItems": 9000}
        body = {
            "messages": [{"role": "user", "content": "Hello"}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": endless}},
            "stream": True,
        }
        request = urllib.request.Request(
            f"{address(process)}/v1/chat/completions", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request) as response:
            first = response.readline()
            process.send_signal(signal.SIGTERM)
            rest = response.read().decode()
        assert first.startswith(b"data: {")
        assert rest.endswith("data: [DONE]\n\n")
        assert "server_stopping" in rest
        assert process.wait() == 128 + signal.SIGTERM
