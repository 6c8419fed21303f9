"""`q35chat serve`: what is refused before anything is served, and a server that is told to end."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from q35chat import cli
from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.commands import model
from q35chat.commands.console import Console
from q35chat.commands.serve import ServeOptions, _service
from q35chat.server.service import Service
from q35chat.settings import Settings
from tests.campaigns.server import address
from tests.cli.processes import running
from tests.cli.scripted import recorded
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


def test_requests_reason_as_the_settings_say_unless_an_option_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[ChatSettings] = []
    settings = Settings(thinking=True, thinking_budget=90)
    monkeypatch.setattr("q35chat.settings.load_settings", lambda: settings)
    engine = SimpleNamespace(sampling_defaults=SamplingSettings())
    monkeypatch.setattr(model, "load_engine", lambda *_: engine)
    monkeypatch.setattr(Service, "over", lambda _, defaults, **__: begun.append(defaults))
    for options in (ServeOptions(), ServeOptions(thinking_budget=7), ServeOptions(thinking=False)):
        _service(replace(options, model_dir=Path("m")), recorded().console)
    assert [(it.thinking, it.thinking_budget) for it in begun] == [
        (True, 90), (True, 7), (False, 90)
    ]  # fmt: skip


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
