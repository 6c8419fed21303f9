"""A stand-in for vLLM's OpenAI server, strict: its answers have the fields that vLLM's do, and it
takes no field that vLLM does not.

Fields are those of vLLM's documentation and protocol classes (docs.vllm.ai, "OpenAI-Compatible
Server", 0.17 and later): `ChatCompletionRequest`, `ChatCompletionStreamResponse`, `DeltaMessage`
with `reasoning`, `UsageInfo`, `ModelCard`, `TokenizeChatRequest`, `TokenizeResponse`,
`ErrorResponse`. A token is a word here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from q35chat.endpoint.choice import EndpointChoice, read_address

TEMPLATE_FIELDS = {
    "model", "messages", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
}  # fmt: skip
CHAT_FIELDS = TEMPLATE_FIELDS | {
    "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
    "repetition_penalty", "seed", "stop", "max_tokens", "reasoning_effort",
    "thinking_token_budget",
}  # fmt: skip
IGNORED = {"reasoning_budget_tokens", "thinking_budget"}
"""Names of other servers, which vLLM passes over with a line in its log."""
STREAM_OPTIONS = {"include_usage", "continuous_usage_stats"}
MESSAGE_FIELDS = {"role", "content", "reasoning", "reasoning_content"}
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.37
"""


@dataclass
class FakeVllm:
    """What it will answer, and what it was asked. `refusals` are answered first, one a request:
    status, headers and body. The stream is cut after `cut_after` chunks with text; `held` is
    awaited before each chunk after the first."""

    thoughts: Sequence[str] = ()
    words: Sequence[str] = ("Hello", " there", ".")
    model: str = "qwen"
    capacity: int | None = 4096
    cached: int | None = None
    key: str = ""
    counts: bool = True
    sees: bool | None = None
    refusals: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    cut_after: int | None = None
    cut_before_text: int = 0
    held: threading.Event | None = None
    finish: str = "stop"
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    broken: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)

    @contextmanager
    def serving(self) -> Iterator[EndpointChoice]:
        """Serve on a free port of this machine."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            port = server.server_address[1]
            yield EndpointChoice(read_address(f"http://127.0.0.1:{port}/v1"))
        finally:
            if self.held is not None:
                self.held.set()
            server.shutdown()
            server.server_close()
        assert self.wrong == []

    def models(self) -> dict[str, Any]:
        """`/v1/models`."""
        card: dict[str, Any] = {
            "id": self.model, "object": "model", "created": 1_780_000_000, "owned_by": "vllm",
            "root": self.model, "parent": None, "max_model_len": self.capacity,
            "permission": [{"id": "modelperm-1", "object": "model_permission",
                            "created": 1_780_000_000, "allow_sampling": True}],
        }  # fmt: skip
        if self.sees is not None:  # as routers and our own server say it
            card["meta"] = {"pictures": self.sees}
        return {"object": "list", "data": [card]}

    def tokens(self, messages: Sequence[dict[str, Any]]) -> int:
        """The prompt's: its words, and two around each message."""
        texts = [
            one["content"] if isinstance(one["content"], str) else one["content"][-1]["text"]
            for one in messages
        ]
        return sum(len(text.split()) + 2 for text in texts) + 1

    def usage(self, prompt: int, made: int) -> dict[str, Any]:
        """`UsageInfo`."""
        details = None if self.cached is None else {"cached_tokens": self.cached}
        return {
            "prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made,
            "prompt_tokens_details": details,
        }  # fmt: skip

    def chunks(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The stream, as `ChatCompletionStreamResponse`s."""
        options = body.get("stream_options") or {}
        prompt = self.tokens(body["messages"])
        made = 0

        def chunk(choices: list[dict[str, Any]], *, usage: bool) -> dict[str, Any]:
            return {
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_780_000_000,
                "model": self.model, "choices": choices,
                **({"usage": self.usage(prompt, made)} if usage else {}),
            }  # fmt: skip

        def choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
            return [{
                "index": 0, "delta": delta, "logprobs": None, "finish_reason": finish,
                **({"stop_reason": None} if finish else {}), "token_ids": None,
            }]  # fmt: skip

        running = options.get("continuous_usage_stats", False)
        yield chunk(choice({"role": "assistant", "content": ""}), usage=running)
        for name, texts in (("reasoning", self.thoughts), ("content", self.words)):
            for text in texts:
                made += 1
                yield chunk(choice({name: text}), usage=running)
        yield chunk(choice({"content": ""}, self.finish), usage=running)
        if options.get("include_usage"):
            yield chunk([], usage=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    fake: FakeVllm
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.fake.paths.append(self.path)
        if self.path == "/metrics":
            self._send(200, METRICS.encode(), "text/plain; version=0.0.4")
        elif self.fake.key and self.headers.get("Authorization") != f"Bearer {self.fake.key}":
            self._json(401, {"error": "Unauthorized"})
        elif self.path == "/v1/models":
            self._json(200, self.fake.models())
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.fake.paths.append(self.path)
        if self.path == "/tokenize" and self.fake.counts:
            self._tokenize(body)
        elif self.path == "/v1/chat/completions":
            self.fake.asked.append(body)
            self.fake.headers.append(dict(self.headers))
            self._chat(body)
        else:
            self._json(404, {"detail": "Not Found"})

    def _tokenize(self, body: dict[str, Any]) -> None:
        self._check(body, TEMPLATE_FIELDS)
        count = self.fake.tokens(body["messages"])
        self._json(200, {
            "count": count, "max_model_len": self.fake.capacity,
            "tokens": list(range(count)), "token_strs": None,
        })  # fmt: skip

    def _chat(self, body: dict[str, Any]) -> None:
        self._check(body, CHAT_FIELDS | IGNORED)
        if unknown := set(body["stream_options"]) - STREAM_OPTIONS:
            self.fake.wrong.append(f"stream_options {sorted(unknown)}")
        if self.fake.refusals:
            status, headers, said = self.fake.refusals.pop(0)
            self._send(status, said.encode(), "application/json", headers)
            return
        needed = self.fake.tokens(body["messages"])
        if self.fake.capacity is not None and needed > self.fake.capacity:
            self._json(400, {"error": {
                "message": f"This model's maximum context length is {self.fake.capacity} tokens. "
                f"However, you requested {needed} tokens in the messages. Please reduce the "
                "length of the messages.",
                "type": "BadRequestError", "param": None, "code": 400,
            }})  # fmt: skip
            return
        try:
            self._stream(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self.fake.broken.set()

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.fake.cut_before_text:
            self.fake.cut_before_text -= 1
            self.close_connection = True
            return
        said = 0
        for chunk in self.fake.chunks(body):
            self._event(json.dumps(chunk))
            delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
            said += bool(delta.get("content") or delta.get("reasoning"))
            if said and self.fake.held is not None:
                while not self.fake.held.wait(0.02):
                    self._raw(b": still there\n\n")
            if said == self.fake.cut_after:
                self.close_connection = True
                return
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        self._raw(f"data: {data}\n\n".encode())

    def _raw(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _check(self, body: dict[str, Any], known: set[str]) -> None:
        self.fake.wrong += [f"field {name}" for name in body.keys() - known]
        for message in body["messages"]:
            self.fake.wrong += [f"message's {name}" for name in message.keys() - MESSAGE_FIELDS]
        if body.get("add_generation_prompt") and body.get("continue_final_message"):
            self.fake.wrong.append("both add_generation_prompt and continue_final_message")

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
