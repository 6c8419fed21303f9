"""`POST /v1/chat/completions`, OpenAI's protocol."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from starlette.requests import Request

from q35chat.chat.events import Likelihood, Usage
from q35chat.chat.prompt.tokenizer import ChatTokenizer, token_bytes
from q35chat.chat.values import TurnOptions
from q35chat.json_reader import Fields
from q35chat.server.body import objects, section, text, whole_or_none
from q35chat.server.conversation import tools_of
from q35chat.server.desk import Answering
from q35chat.server.exchange import Wanted, exchange, reader_of
from q35chat.server.forms import Form, form_of_choice, with_format
from q35chat.server.problems import problem_of
from q35chat.server.reply import Called, Ended, Said, Whole, pieces, read_whole
from q35chat.server.sampling import MOST_LOGPROBS, check_possible, settings_of, with_thinking
from q35chat.server.service import Asked, Service
from q35chat.server.streams import as_json, frame

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class _Wanted(Wanted):
    """What the response needs, too."""

    form: Form
    include_usage: bool


async def chat_completions(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """Answer a conversation."""
    return await exchange(request, service, _read, _Reply)


def _read(body: Fields, service: Service, client: str) -> _Wanted:
    check_possible(body)
    most = whole_or_none(body, "max_completion_tokens", least=1)
    most = most or whole_or_none(body, "max_tokens", least=1)
    model = service.engine.model
    settings = settings_of(body, service.defaults)
    settings = with_thinking(body, settings, model.capacity, model.offers.efforts, most)
    engine = service.engine
    choice = body.raw("tool_choice") or "auto"
    if isinstance(choice, dict):
        choice = text(section(section(body, "tool_choice"), "function"), "name")
    tools, form = form_of_choice(engine, tools_of(body), str(choice))
    form = with_format(engine, form, body, "response_format")
    logprobs = None
    if body.flag("logprobs", default=False):
        logprobs = body.whole("top_logprobs", 0, most=MOST_LOGPROBS)
    turns = reader_of(service).turns(objects(body, "messages"))
    stream_options = section(body, "stream_options")
    return _Wanted(
        asked=Asked(
            settings,
            turns=turns,
            tools=tools,
            options=TurnOptions(most, logprobs, constraint=form.constraint),
            client=client,
        ),
        form=form,
        stream=body.flag("stream", default=False),
        include_usage=stream_options.flag("include_usage", default=False),
    )


class _Reply:
    """One response."""

    def __init__(self, service: Service, wanted: _Wanted, answering: Answering) -> None:
        self._service = service
        self._wanted = wanted
        self._answering = answering
        self._whole = Whole()
        self._pieces = pieces(answering, wanted.form.parsing, service.answers, self._whole)
        self._head = {
            "id": f"chatcmpl-{uuid4().hex}",
            "created": int(time.time()),
            "model": service.name,
        }

    async def whole(self) -> Any:  # noqa: ANN401
        """The answer as one object."""
        ended = await read_whole(self._answering, self._pieces)
        whole = self._whole
        message: dict[str, Any] = {"role": "assistant", "content": whole.text}
        if whole.reasoning:
            message |= {"reasoning": whole.reasoning, "reasoning_content": whole.reasoning}
        if whole.calls:
            message["content"] = whole.text or None
            message["tool_calls"] = [
                {"id": ident, "type": "function",
                 "function": {"name": name, "arguments": arguments}}
                for ident, name, arguments in whole.calls.values()
            ]  # fmt: skip
        choice = self._choice({"message": message}, ended)
        choice["logprobs"] = self._logprobs(tuple(whole.likelihoods))
        return as_json(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": usage_of(ended.usage),
            }
        )

    async def frames(self) -> AsyncGenerator[bytes]:
        """The answer as it comes."""
        yield self._chunk({"delta": {"role": "assistant", "content": ""}})
        try:
            async for piece in self._pieces:
                match piece:
                    case Said(kind="reasoning"):
                        delta = {"reasoning": piece.text, "reasoning_content": piece.text}
                        yield self._chunk({"delta": delta})
                    case Said():
                        choice: dict[str, Any] = {"delta": {"content": piece.text}}
                        yield self._chunk(choice | {"logprobs": self._logprobs(piece.likelihoods)})
                    case Called():
                        yield self._chunk({"delta": {"tool_calls": [_call_delta(piece)]}})
                    case Ended():
                        yield self._chunk(self._choice({"delta": {}}, piece))
                        if self._wanted.include_usage:
                            yield self._frame({"choices": [], "usage": usage_of(piece.usage)})
        except Exception as error:  # noqa: BLE001  (the protocol tells it)
            yield frame(problem_of(error).body("/v1/chat/completions"))
        yield DONE

    def _choice(self, choice: dict[str, Any], ended: Ended) -> dict[str, Any]:
        reason = ended.reason if ended.reason in ("loop", "capacity") else None
        return {**choice, "index": 0, "finish_reason": ended.finish, "stop_reason": reason}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        choice = {"index": 0, "finish_reason": None, **choice}
        return self._frame({"choices": [choice]})

    def _frame(self, fields: dict[str, Any]) -> bytes:
        return frame({**self._head, "object": "chat.completion.chunk", **fields})

    def _logprobs(self, likelihoods: tuple[tuple[int, Likelihood], ...]) -> dict[str, Any] | None:
        if self._wanted.asked.options.top_logprobs is None:
            return None
        tokenizer = self._service.engine.tokenizer
        found = []
        for token, likelihood in likelihoods:
            top = [_logprob(tokenizer, one, chance) for one, chance in likelihood.top]
            found.append({**_logprob(tokenizer, token, likelihood.logprob), "top_logprobs": top})
        return {"content": found, "refusal": None}


def _logprob(tokenizer: ChatTokenizer, token: int, logprob: float) -> dict[str, Any]:
    spelled = token_bytes(tokenizer, token)
    name = spelled.decode("utf-8", "replace") if spelled else tokenizer.piece(token) or ""
    return {"token": name, "logprob": max(logprob, -9999.0), "bytes": list(spelled)}


def _call_delta(piece: Called) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": piece.arguments}
    delta: dict[str, Any] = {"index": piece.index, "function": function}
    if piece.name:
        function["name"] = piece.name
        delta |= {"id": piece.id, "type": "function"}
    return delta


def usage_of(usage: Usage) -> dict[str, Any]:
    """Token counts as OpenAI names them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
