"""`POST /v1/messages`, Anthropic's protocol, and the count of a request's tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from starlette.requests import Request

from q35chat.chat.events import PromptPlan, Usage
from q35chat.chat.values import Attachment, ChatSettings, ToolCall, Tools, Turn, TurnOptions
from q35chat.json_reader import Fields
from q35chat.server.body import object_of, objects, read_body, section, text, whole_or_none
from q35chat.server.conversation import (
    MessageReader,
    checked_arguments,
    function_tool,
    leading_merged,
)
from q35chat.server.desk import Answering
from q35chat.server.exchange import Wanted, exchange, reader_of
from q35chat.server.forms import Form, form_of_choice
from q35chat.server.problems import RefusedError, problem_of
from q35chat.server.reply import Called, Ended, Said, Whole, pieces, read_whole
from q35chat.server.sampling import settings_of, with_thinking
from q35chat.server.service import Asked, Service
from q35chat.server.streams import as_json, frame
from q35chat.text import safe_line

_STOPS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass(frozen=True, slots=True)
class _Wanted(Wanted):
    """What the response needs, too."""

    form: Form
    stream: bool


async def messages(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """Answer a conversation."""
    return await exchange(request, service, _read, _Reply)


async def count_tokens(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """How many tokens the prompt of a request has."""
    body = await read_body(request, service.most_body)

    def count() -> int:
        return len(service.prompt(_asked(body, service, None, "")[0]))

    return as_json({"input_tokens": await asyncio.to_thread(count)})


def _read(body: Fields, service: Service, client: str) -> _Wanted:
    most = body.whole("max_tokens", least=1)
    asked, form = _asked(body, service, most, client)
    return _Wanted(asked, body.flag("stream", default=False), form)


def _asked(body: Fields, service: Service, most: int | None, client: str) -> tuple[Asked, Form]:
    given: Tools = tuple(
        function_tool(text(tool, "name"), text(tool, "description", ""), tool.raw("input_schema"))
        for tool in objects(body, "tools")
    )
    choice = section(body, "tool_choice")
    kind = text(choice, "type", "auto")
    named = {"any": "required", "tool": text(choice, "name", "")}.get(kind, kind)
    tools, form = form_of_choice(service.engine, given, named)
    settings = _settings(body, service, most)
    asked = Asked(
        settings,
        turns=_turns(body, reader_of(service)),
        tools=tools,
        options=TurnOptions(max_tokens=most, constraint=form.constraint),
        client=client,
    )
    return asked, form


def _settings(body: Fields, service: Service, most: int | None) -> ChatSettings:
    model = service.engine.model
    settings = settings_of(body, service.defaults, "stop_sequences")
    thinking = section(body, "thinking")
    kind = text(thinking, "type", "")
    asked = {name: body.raw(name) for name in ("chat_template_kwargs", "reasoning_effort")}
    if kind:
        asked["enable_thinking"] = kind != "disabled"
        if kind == "enabled":
            asked["thinking_budget"] = whole_or_none(thinking, "budget_tokens", least=1)
    fields = object_of(asked, "the body")
    return with_thinking(fields, settings, model.capacity, model.offers.efforts, most)


def _turns(body: Fields, reader: MessageReader) -> tuple[Turn, ...]:
    system, _ = reader.content(body, "system")
    turns = [Turn("system", system)] if system.strip() else []
    given = objects(body, "messages")
    if not given:
        raise RefusedError("messages: at least one is needed", param="messages")
    for message in given:
        match text(message, "role"):
            case "assistant":
                turns.append(_answer(message, reader))
            case "user":
                turns += _question(message, reader)
            case "system":
                turns.append(Turn("system", reader.content(message, "content")[0]))
            case other:
                said = safe_line(other, 60)
                raise RefusedError(f"{message.where}: role must be user or assistant, not {said!r}")
    return leading_merged(turns)


def _blocks(message: Fields) -> list[Fields]:
    value = message.raw("content")
    if isinstance(value, str):
        return [object_of({"type": "text", "text": value}, message.where)]
    return objects(message, "content")


def _answer(message: Fields, reader: MessageReader) -> Turn:
    said, thoughts, calls = list[str](), list[str](), list[tuple[str, ToolCall]]()
    for block in _blocks(message):
        match text(block, "type"):
            case "text":
                said.append(text(block, "text"))
            case "thinking":
                thoughts.append(text(block, "thinking", ""))
            case "tool_use":
                arguments = checked_arguments(block.raw("input"), block.where)
                calls.append((text(block, "id", ""), ToolCall(text(block, "name"), arguments)))
    return reader.answer("".join(said), "".join(thoughts), calls)


def _question(message: Fields, reader: MessageReader) -> Iterator[Turn]:
    """What tools gave, then the question."""
    said, pictures, results = list[str](), list[Attachment](), 0
    for block in _blocks(message):
        match text(block, "type"):
            case "text":
                said.append(text(block, "text"))
            case "image":
                pictures.append(_picture(section(block, "source"), reader))
            case "tool_result":
                results += 1
                yield _result(block, reader, pictures)
            case other:
                raise RefusedError(
                    f"{block.where} has the type {safe_line(other, 60)!r}; text, pictures and "
                    "results of tools can be read"
                )
    if said or pictures or not results:
        yield Turn("user", "\n".join(said), tuple(pictures))


def _result(block: Fields, reader: MessageReader, pictures: list[Attachment]) -> Turn:
    """What a tool gave; its pictures are shown with the question after it."""
    if isinstance(block.raw("content"), list):
        said = list[str]()
        for part in objects(block, "content"):
            if text(part, "type") == "image":
                pictures.append(_picture(section(part, "source"), reader))
            else:
                said.append(text(part, "text"))
        return Turn("tool", "\n".join(said))
    return Turn("tool", text(block, "content", ""))


def _picture(source: Fields, reader: MessageReader) -> Attachment:
    if text(source, "type") != "base64":
        raise RefusedError("pictures are not fetched: send a source of type base64")
    return reader.picture_of(text(source, "data"))


class _Reply:
    """One response."""

    def __init__(self, service: Service, wanted: _Wanted, answering: Answering) -> None:
        self._answering = answering
        self._stops = wanted.asked.settings.stop
        self._stop_ids = service.engine.stop_ids
        self._whole = Whole()
        self._pieces = pieces(answering, wanted.form.parsing, service.answers, self._whole)
        self._head = {
            "id": f"msg_{uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": service.name,
        }

    async def whole(self) -> Any:  # noqa: ANN401
        """The answer as one object."""
        ended = await read_whole(self._answering, self._pieces)
        whole = self._whole
        content: list[dict[str, Any]] = []
        if whole.reasoning:
            content.append({"type": "thinking", "thinking": whole.reasoning, "signature": ""})
        if whole.text or not whole.calls:
            content.append({"type": "text", "text": whole.text})
        for ident, name, arguments in whole.calls.values():
            given = json.loads(arguments)
            content.append({"type": "tool_use", "id": ident, "name": name, "input": given})
        end = {"content": content, **self._stop(ended), "usage": _usage(ended.usage)}
        return as_json({**self._head, **end})

    async def frames(self) -> AsyncGenerator[bytes]:
        """The answer as it comes, block by block."""
        index, kind = -1, ""
        try:
            async for piece in self._pieces:
                match piece:
                    case PromptPlan():
                        yield self._start(piece)
                    case Said() | Called():
                        this = f"call {piece.index}" if isinstance(piece, Called) else piece.kind
                        if this != kind:
                            if kind:
                                yield _event("content_block_stop", index=index)
                            index, kind = index + 1, this
                            block = _opened(piece)
                            yield _event("content_block_start", index=index, content_block=block)
                        if delta := _delta(piece):
                            yield _event("content_block_delta", index=index, delta=delta)
                    case Ended():
                        if kind:
                            yield _event("content_block_stop", index=index)
                        usage = _usage(piece.usage)
                        yield _event("message_delta", delta=self._stop(piece), usage=usage)
                        yield _event("message_stop")
        except Exception as error:  # noqa: BLE001  (the protocol tells it)
            yield frame(problem_of(error).body("/v1/messages"), "error")

    def _start(self, plan: PromptPlan) -> bytes:
        usage = _counts(plan.prompt_tokens, plan.reused_tokens, 0)
        empty: dict[str, Any] = {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return _event("message_start", message={**self._head, **empty})

    def _stop(self, ended: Ended) -> dict[str, Any]:
        if ended.finish == "stop" and self._stops and ended.last not in self._stop_ids:
            sequence = self._stops[0] if len(self._stops) == 1 else None
            return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
        return {"stop_reason": _STOPS[ended.finish], "stop_sequence": None}


def _opened(piece: Said | Called) -> dict[str, Any]:
    if isinstance(piece, Called):
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
    if piece.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _delta(piece: Said | Called) -> dict[str, Any] | None:
    if isinstance(piece, Called):
        if not piece.arguments:
            return None
        return {"type": "input_json_delta", "partial_json": piece.arguments}
    if piece.kind == "reasoning":
        return {"type": "thinking_delta", "thinking": piece.text}
    return {"type": "text_delta", "text": piece.text}


def _event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, kind)


def _usage(usage: Usage) -> dict[str, Any]:
    return _counts(usage.prompt_tokens, usage.reused_tokens, usage.completion_tokens)


def _counts(prompt: int, reused: int, written: int) -> dict[str, Any]:
    """Token counts as Anthropic names them: what was reused is none of the input."""
    return {
        "input_tokens": prompt - reused,
        "cache_read_input_tokens": reused,
        "cache_creation_input_tokens": 0,
        "output_tokens": written,
    }
