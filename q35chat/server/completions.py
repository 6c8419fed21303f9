"""`POST /v1/completions`: text goes on where a prompt ends, without a template."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from starlette.requests import Request

from q35chat.chat.events import Likelihood, PromptLikelihoods, PromptPlan
from q35chat.chat.prompt.tokenizer import ChatTokenizer, token_bytes
from q35chat.chat.values import TurnOptions
from q35chat.json_reader import Fields
from q35chat.server.body import characters, section, text, whole_or_none
from q35chat.server.chat_completions import DONE, usage_of
from q35chat.server.desk import Answering
from q35chat.server.exchange import Wanted, exchange
from q35chat.server.problems import RefusedError, problem_of
from q35chat.server.reply import Ended, Parsing, Said, Whole, pieces, read_whole
from q35chat.server.sampling import check_possible, settings_of
from q35chat.server.service import Asked, Service
from q35chat.server.streams import as_json, frame

DEFAULT_TOKENS = 16
"""What the protocol answers with where nothing is said."""
MOST_LOGPROBS = 5
Weighed = tuple[tuple[int, Likelihood | None], ...]
"""Tokens with how likely each was, None where nothing is known."""


@dataclass(frozen=True, slots=True)
class _Wanted(Wanted):
    """What the response needs, too."""

    include_usage: bool
    echoed: str
    """The prompt where the response begins with it, else nothing."""


async def completions(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """Go on with a text."""
    return await exchange(request, service, _read, _Reply)


def _read(body: Fields, service: Service, client: str) -> _Wanted:
    check_possible(body)
    if body.raw("suffix"):
        raise RefusedError("suffix is not supported: leave it out", param="suffix")
    if body.whole("best_of", 1, least=1) != 1:
        raise RefusedError("best_of: one answer is written: leave it out", param="best_of")
    echo = body.flag("echo", default=False)
    most = whole_or_none(body, "max_tokens", least=0 if echo else 1)
    logprobs = body.whole("logprobs", most=MOST_LOGPROBS) if body.has("logprobs") else None
    settings = replace(settings_of(body, service.defaults), thinking=False)
    asked = Asked(
        settings,
        text=_prompt(body),
        options=TurnOptions(
            max_tokens=DEFAULT_TOKENS if most is None else most,
            top_logprobs=logprobs,
            prompt_logprobs=echo and logprobs is not None,
        ),
        client=client,
    )
    options = section(body, "stream_options")
    stream = body.flag("stream", default=False)
    usage = options.flag("include_usage", default=False)
    echoed = _text_of(asked.text, service) if echo else ""
    return _Wanted(asked, stream, usage, echoed)


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


def _text_of(prompt: str | Sequence[int], service: Service) -> str:
    if isinstance(prompt, str):
        return prompt
    return "".join(_name(service.engine.tokenizer, token) for token in prompt)


class _Reply:
    """One response."""

    def __init__(self, service: Service, wanted: _Wanted, answering: Answering) -> None:
        self._service = service
        self._wanted = wanted
        self._answering = answering
        self._whole = Whole()
        self._offset = 0
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
        read = self._read(self._whole.prompt_likelihoods)
        logprobs = self._logprobs((*read, *self._whole.likelihoods))
        choice = self._choice(self._wanted.echoed + self._whole.text, ended.finish, logprobs)
        return as_json({**self._head, "choices": [choice], "usage": usage_of(ended.usage)})

    async def frames(self) -> AsyncGenerator[bytes]:
        """The text as it comes."""
        echoed, weighed = self._wanted.echoed, self._wanted.asked.options.prompt_logprobs
        try:
            async for piece in self._pieces:
                match piece:
                    case PromptPlan() if echoed and not weighed:
                        yield self._frame(choices=[self._choice(echoed, None, None)])
                    case PromptLikelihoods():
                        logprobs = self._logprobs(self._read(piece.tokens))
                        yield self._frame(choices=[self._choice(echoed, None, logprobs)])
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

    def _read(self, likelihoods: Weighed) -> Weighed:
        """Those of the prompt where they are told, and its first token, of which nobody can say how
        likely it is."""
        if not self._wanted.asked.options.prompt_logprobs:
            return ()
        return ((int(self._answering.job.prompt.ids[0]), None), *likelihoods)

    def _logprobs(self, likelihoods: Weighed) -> dict[str, Any] | None:
        if self._wanted.asked.options.top_logprobs is None:
            return None
        tokenizer = self._service.engine.tokenizer
        names, offsets = list[str](), list[int]()
        for token, _ in likelihoods:
            names.append(_name(tokenizer, token))
            offsets.append(self._offset)
            self._offset += len(names[-1])
        return {
            "tokens": names,
            "token_logprobs": [one and one.logprob for _, one in likelihoods],
            "top_logprobs": [
                one and {_name(tokenizer, token): logprob for token, logprob in one.top}
                for _, one in likelihoods
            ],
            "text_offset": offsets,
        }


def _name(tokenizer: ChatTokenizer, token: int) -> str:
    spelled = token_bytes(tokenizer, token)
    return spelled.decode("utf-8", "replace") if spelled else tokenizer.piece(token) or ""
