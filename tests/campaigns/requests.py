"""Requests to a real server on the loopback address as the bytes that go over the wire, and what is
wrong with what comes back.

The server is a process of its own over a small random model; it must outlive all of them, say
nothing about any, and answer at the end as it did before the first.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from q35chat.processes import python_command, python_environment
from q35chat.text import safe_text
from tests.campaigns.server import address
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_bundle
from tests.vision.files import sample

SUFFIX: Final = ".http"
_PATIENCE_S: Final = 60.0
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3})[ \r]")
_GOOD: Final = frozenset({200, 503})
_QUESTION: Final = "chat.http"


class Served:
    """A server that is asked with raw requests. One that is not answered in a time that is long for
    a good one waits for more of it: the client goes away."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._place = ("", 0)
        self._before = b""
        self._soon_s = 1.0

    def make(self, folder: Path) -> None:
        """Write good requests into `folder`, and start the server."""
        for name, data in _REQUESTS.items():
            (folder / name).write_bytes(data)
        beside = folder.parent / "served"
        bundle = export_bundle(make_checkpoint(beside / "checkpoint", seed=5), beside / "bundle")
        self._process = subprocess.Popen(
            python_command("-m", "q35chat", "serve", "--port", "0", "--model-dir", str(bundle)),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        host, _, port = address(self._process).removeprefix("http://").partition(":")
        self._place = host, int(port)
        start = time.monotonic()
        self._before = self._body((folder / _QUESTION).read_bytes())
        self._soon_s += 2 * (time.monotonic() - start)

    def read(self, folder: Path) -> None:
        """Send every request in `folder`. Raises AssertionError for an answer that is none."""
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            answer, left = self.ask(file.read_bytes(), self._soon_s)
            found = _STATUS.match(answer)
            if not found:
                assert left, f"closed with {answer[:80]!r}"
                continue
            status = int(found[1])
            assert status in _GOOD or 400 <= status < 500, answer[:200]
            words = answer.decode("utf-8").replace("\r\n", "\n")
            assert safe_text(words) == words, answer
            assert "Traceback" not in words, answer

    def last(self, folder: Path) -> list[str]:
        """End the server; what is wrong with it after all requests, a line each."""
        process, found = self._process, list[str]()
        assert process is not None
        if process.poll() is not None:
            return [f"the server ended with {process.returncode}"]
        if self._body((folder / _QUESTION).read_bytes()) != self._before:
            found.append("the server answers otherwise than before")
        process.terminate()
        _, said = process.communicate(timeout=_PATIENCE_S)
        return found + [f"the server said {line!a}" for line in said.decode().splitlines()]

    def ask(self, data: bytes, soon_s: float) -> tuple[bytes, bool]:
        """What is answered to `data`, and whether the client went away when nothing had come for
        `soon_s`."""
        answer, left = b"", False
        with (
            socket.create_connection(self._place, _PATIENCE_S) as client,
            suppress(BrokenPipeError, ConnectionResetError),  # refused before all was sent
        ):
            client.sendall(data)
            client.settimeout(soon_s)
            while True:
                try:
                    part = client.recv(1 << 16)
                except TimeoutError:
                    if left:
                        raise
                    client.settimeout(_PATIENCE_S)
                    client.shutdown(socket.SHUT_WR)
                    left = True
                    continue
                if not part:
                    break
                answer += part
        return answer, left

    def _body(self, request: bytes) -> bytes:
        """What is answered, without what tells of the time."""
        document = json.loads(self.ask(request, _PATIENCE_S)[0].partition(b"\r\n\r\n")[2])
        return json.dumps(document["choices"]).encode()


def _post(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + data


def _requests() -> dict[str, bytes]:
    picture = base64.b64encode(sample("PNG")).decode()
    shown = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        {"type": "text", "text": "What is it?"},
    ]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 1}
    asked = {"messages": [{"role": "user", "content": "Hello"}], **greedy}
    paths: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", asked),
        "stream": ("/v1/chat/completions", {**asked, "stream": True}),
        "tools": ("/v1/chat/completions", {**asked, "tools": [tool]}),
        "picture": ("/v1/chat/completions", {"messages": [{"role": "user", "content": shown}],
                                             **greedy}),
        "messages": ("/v1/messages", asked),
        "responses": ("/v1/responses", {"input": "Hello", "max_output_tokens": 1}),
        "completions": ("/v1/completions", {"prompt": "Hello", **greedy}),
        "tokens": ("/tokenize", {"content": "Hello"}),
        "template": ("/apply-template", asked),
    }  # fmt: skip
    found = {f"{name}{SUFFIX}": _post(*asking) for name, asking in paths.items()}
    page = b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    return found | {f"get{SUFFIX}": page % b"v1/models", f"metrics{SUFFIX}": page % b"metrics"}


_REQUESTS: Final = _requests()
NAMES: Final = tuple(_REQUESTS)
