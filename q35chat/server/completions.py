"""`POST /v1/completions`: text goes on where a prompt ends, without a template."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from starlette.requests import Request

from q35chat.chat.events import Likelihood
from q35chat.chat.prompt.tokenizer import token_bytes
from q35chat.chat.values import TurnOptions
from q35chat.json_reader import Fields
from q35chat.server.body import characters, read_body, section, text, whole_or_none
from q35chat.server.chat_completions import DONE, client_of, usage_of
from q35chat.server.desk import Answering, Job
from q35chat.server.problems import RefusedError, problem_of
from q35chat.server.reply import Ended, Parsing, Said, Whole, pieces, read_whole
from q35chat.server.sampling import check_possible, settings_of
from q35chat.server.service import Asked, Service
from q35chat.server.streams import EventStream, as_json, frame, unless_gone

DEFAULT_TOKENS = 16
"""What the protocol answers with where nothing is said."""
MOST_LOGPROBS = 5


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A request, read."""

    asked: Asked
    stream: bool
    include_usage: bool


async def completions(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """Go on with a text."""
    body = await read_body(request, service.most_body)
    client = client_of(request, body)
    wanted, job = await asyncio.to_thread(_read, body, service, client)
    answering = service.submit(job)
    reply = _Reply(service, wanted, answering)
    if wanted.stream:
        return EventStream(reply.frames(), answering.cancel)
    return await unless_gone(request, reply.whole())


def _read(body: Fields, service: Service, client: str) -> tuple[_Wanted, Job]:
    check_possible(body)
    for name in ("echo", "suffix"):
        if body.raw(name):
            raise RefusedError(f"{name} is not supported: leave it out", param=name)
    if body.whole("best_of", 1, least=1) != 1:
        raise RefusedError("best_of: one answer is written: leave it out", param="best_of")
    most = whole_or_none(body, "max_tokens", least=1) or DEFAULT_TOKENS
    logprobs = body.whole("logprobs", most=MOST_LOGPROBS) if body.has("logprobs") else None
    settings = replace(settings_of(body, service.defaults), thinking=False)
    asked = Asked(
        settings,
        text=_prompt(body),
        options=TurnOptions(max_tokens=most, top_logprobs=logprobs),
        client=client,
    )
    options = section(body, "stream_options")
    stream = body.flag("stream", default=False)
    usage = options.flag("include_usage", default=False)
    return _Wanted(asked, stream, usage), service.job(asked)


def _prompt(body: Fields) -> str | list[int]:
    """A text or token ids; a list of one of them is it."""
    value = body.raw("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        return value
    if isinstance(value, str):
        return characters(value, "prompt")
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        raise RefusedError(
            f"prompt: {len(value)} prompts, one is answered at a time: send them one by one",
            param="prompt",
        )
    return text(body, "prompt")


class _Reply:
    """One response."""

    def __init__(self, service: Service, wanted: _Wanted, answering: Answering) -> None:
        self._service = service
        self._wanted = wanted
        self._answering = answering
        self._whole = Whole()
        self._pieces = pieces(answering, Parsing(), service.answers, self._whole)
        self._head = {
            "id": f"cmpl-{uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.name,
        }

    async def whole(self) -> Any:  # noqa: ANN401
        """The text as one object."""
        ended = await read_whole(self._answering, self._pieces)
        logprobs = self._logprobs(tuple(self._whole.likelihoods))
        choice = self._choice(self._whole.text, ended.finish, logprobs)
        return as_json({**self._head, "choices": [choice], "usage": usage_of(ended.usage)})

    async def frames(self) -> AsyncGenerator[bytes]:
        """The text as it comes."""
        try:
            async for piece in self._pieces:
                match piece:
                    case Said():
                        logprobs = self._logprobs(piece.likelihoods)
                        yield self._frame(choices=[self._choice(piece.text, None, logprobs)])
                    case Ended():
                        yield self._frame(choices=[self._choice("", piece.finish, None)])
                        if self._wanted.include_usage:
                            yield self._frame(choices=[], usage=usage_of(piece.usage))
        except Exception as error:  # noqa: BLE001  (the protocol tells it)
            yield frame(problem_of(error).body("/v1/completions"))
        yield DONE

    def _choice(self, said: str, finish: str | None, logprobs: object) -> dict[str, Any]:
        return {"index": 0, "text": said, "finish_reason": finish, "logprobs": logprobs}

    def _frame(self, **fields: Any) -> bytes:
        return frame({**self._head, **fields})

    def _logprobs(self, likelihoods: tuple[tuple[int, Likelihood], ...]) -> dict[str, Any] | None:
        if self._wanted.asked.options.top_logprobs is None:
            return None
        names, offsets, place = list[str](), list[int](), 0
        for token, _ in likelihoods:
            names.append(self._name(token))
            offsets.append(place)
            place += len(names[-1])
        return {
            "tokens": names,
            "token_logprobs": [likelihood.logprob for _, likelihood in likelihoods],
            "top_logprobs": [
                {self._name(token): logprob for token, logprob in likelihood.top}
                for _, likelihood in likelihoods
            ],
            "text_offset": offsets,
        }

    def _name(self, token: int) -> str:
        tokenizer = self._service.engine.tokenizer
        spelled = token_bytes(tokenizer, token)
        return spelled.decode("utf-8", "replace") if spelled else tokenizer.piece(token) or ""
