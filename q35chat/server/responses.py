"""`POST /v1/responses`, OpenAI's newer protocol. Nothing is stored: each request has it all."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import uuid4

from starlette.requests import Request

from q35chat.chat.events import Usage
from q35chat.chat.values import ToolCall, Turn, TurnOptions
from q35chat.json_reader import Fields
from q35chat.server.body import object_of, objects, section, text, whole_or_none
from q35chat.server.conversation import (
    ROLES,
    MessageReader,
    checked_arguments,
    leading_merged,
    tools_of,
)
from q35chat.server.desk import Answering
from q35chat.server.exchange import Wanted, exchange, reader_of
from q35chat.server.forms import Form, form_of_choice, with_format
from q35chat.server.problems import RefusedError, problem_of
from q35chat.server.reply import Called, Ended, Said, Whole, pieces, read_whole
from q35chat.server.sampling import settings_of, with_thinking
from q35chat.server.service import Asked, Service
from q35chat.server.streams import as_json, frame
from q35chat.text import safe_line

_PATH: Final = "/v1/responses"


@dataclass(frozen=True, slots=True)
class _Wanted(Wanted):
    """What the response needs, too; `echoed` are its fields that the response repeats."""

    form: Form
    echoed: dict[str, Any]


async def responses(request: Request, service: Service) -> Any:  # noqa: ANN401  (ASGI)
    """Answer a conversation."""
    return await exchange(request, service, _read, _Reply)


def _read(body: Fields, service: Service, client: str) -> _Wanted:
    for name in ("previous_response_id", "conversation"):
        if body.has(name):
            what = f"{name}: nothing is stored here: send the whole conversation as input"
            raise RefusedError(what, param=name)
    most = whole_or_none(body, "max_output_tokens", least=1)
    engine = service.engine
    settings = settings_of(body, service.defaults)
    asked = {name: body.raw(name) for name in ("chat_template_kwargs", "thinking_budget")}
    asked["reasoning_effort"] = section(body, "reasoning").raw("effort")
    fields = object_of(asked, "the body")
    efforts = engine.model.offers.efforts
    settings = with_thinking(fields, settings, engine.model.capacity, efforts, most)
    choice = body.raw("tool_choice")
    named = text(section(body, "tool_choice"), "name") if isinstance(choice, dict) else choice
    tools, form = form_of_choice(engine, tools_of(body), str(named or "auto"))
    form = with_format(engine, form, section(body, "text"), "format")
    return _Wanted(
        asked=Asked(
            settings,
            turns=_turns(body, reader_of(service)),
            tools=tools,
            options=TurnOptions(max_tokens=most, constraint=form.constraint),
            client=client,
        ),
        form=form,
        stream=body.flag("stream", default=False),
        echoed={
            "instructions": body.raw("instructions"),
            "max_output_tokens": most,
            "metadata": body.raw("metadata") or {},
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": settings.sampling.temperature,
            "text": body.raw("text") or {"format": {"type": "text"}},
            "tool_choice": choice or "auto",
            "tools": body.raw("tools") or [],
            "top_p": settings.sampling.top_p,
        },
    )


@dataclass(slots=True)
class _Pending:
    """Items that together are one answer of the model."""

    said: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[tuple[str, ToolCall]] = field(default_factory=list)

    def taken(self, reader: MessageReader) -> Iterator[Turn]:
        if self.said or self.calls:
            yield reader.answer("".join(self.said), "".join(self.thoughts), self.calls)
        self.said, self.thoughts, self.calls = [], [], []


def _turns(body: Fields, reader: MessageReader) -> tuple[Turn, ...]:
    instructions = text(body, "instructions", "")
    turns = [Turn("system", instructions)] if instructions.strip() else []
    if isinstance(body.raw("input"), str):
        return leading_merged([*turns, Turn("user", text(body, "input"))])
    items = objects(body, "input")
    if not items:
        raise RefusedError("input: a text or a list of items is needed", param="input")
    pending = _Pending()
    for item in items:
        kind = text(item, "type", "message")
        role = ROLES.get(text(item, "role", "user"))
        if (kind == "message" and role != "assistant") or kind == "function_call_output":
            turns += pending.taken(reader)
            turns.append(_told(item, kind, reader))
        else:
            _wrote(item, kind, pending, reader)
    turns += pending.taken(reader)
    return leading_merged(turns)


def _told(item: Fields, kind: str, reader: MessageReader) -> Turn:
    if kind == "function_call_output":
        return Turn("tool", reader.content(item, "output")[0])
    role = ROLES.get(name := text(item, "role"))
    if role is None:
        said = safe_line(name, 60)
        raise RefusedError(f"{item.where}: there is no role {said!r}", param="input")
    said, pictures = reader.content(item, "content")
    return Turn(role, said, pictures)


def _wrote(item: Fields, kind: str, pending: _Pending, reader: MessageReader) -> None:
    """Take in an item that the model wrote."""
    match kind:
        case "message":
            pending.said.append(reader.content(item, "content")[0])
        case "function_call":
            call = ToolCall(
                text(item, "name"), checked_arguments(item.raw("arguments"), item.where)
            )
            pending.calls.append((text(item, "call_id", ""), call))
        case "reasoning":
            thoughts = [text(part, "text", "") for part in objects(item, "content")]
            pending.thoughts.append("".join(thoughts))
        case other:
            said = safe_line(other, 60)
            raise RefusedError(f"{item.where}: items of type {said!r} cannot be read")


@dataclass(slots=True)
class _Item:
    """An output item as it grows."""

    kind: Literal["reasoning", "message", "function_call"]
    id: str
    index: int
    text: str = ""
    name: str = ""
    call_id: str = ""

    @property
    def content_type(self) -> str:
        """What its part is called."""
        return "reasoning_text" if self.kind == "reasoning" else "output_text"

    def part(self) -> dict[str, Any]:
        """Its one part."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def told(self, status: str) -> dict[str, Any]:
        """The item, with its part unless it only begins."""
        head = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "function_call":
            return {
                **head, "call_id": self.call_id, "name": self.name, "arguments": self.text
            }  # fmt: skip
        parts = [] if status == "in_progress" else [self.part()]
        if self.kind == "reasoning":
            return {**head, "summary": [], "content": parts}
        return {**head, "role": "assistant", "content": parts}


class _Reply:
    """One response."""

    def __init__(self, service: Service, wanted: _Wanted, answering: Answering) -> None:
        self._answering = answering
        self._pieces = pieces(answering, wanted.form.parsing, service.answers, Whole())
        self._items: list[_Item] = []
        self._count = self._sequence = 0
        self._head = {
            "id": f"resp_{uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": service.name,
            **wanted.echoed,
        }

    async def whole(self) -> Any:  # noqa: ANN401
        """The answer as one object."""
        ended = await read_whole(self._answering, self._pieces, self._grow)
        return as_json(self._response(ended))

    async def frames(self) -> AsyncGenerator[bytes]:
        """The answer as it comes, item by item."""
        begun = {**self._head, "status": "in_progress", "output": [], "usage": None}
        begun |= {"error": None, "incomplete_details": None}
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)
        try:
            async for piece in self._pieces:
                match piece:
                    case Said() | Called():
                        before = self._items[-1] if self._items else None
                        item = self._grow(piece)
                        if item is not before:
                            for told in (*self._closed(before), *self._opened(item)):
                                yield told
                        yield self._grown(item, piece)
                    case Ended():
                        for told in self._closed(self._items[-1] if self._items else None):
                            yield told
                        response = self._response(piece)
                        yield self._event(f"response.{response['status']}", response=response)
        except Exception as error:  # noqa: BLE001  (the protocol tells it)
            told = problem_of(error).body(_PATH)["error"]
            yield self._event("error", message=told["message"], code=told["code"], param=None)

    def _grow(self, piece: Said | Called) -> _Item:
        """The item that `piece` belongs to, with it."""
        if isinstance(piece, Said) and piece.undoes:
            self._items = [item for item in self._items if item.call_id != piece.undoes]
        last = self._items[-1] if self._items else None
        if isinstance(piece, Called):
            if last is None or last.call_id != piece.id:
                last = self._new("function_call", "fc")
                last.name, last.call_id = piece.name, piece.id
            last.text += piece.arguments
            return last
        kind: Literal["reasoning", "message"] = (
            "reasoning" if piece.kind == "reasoning" else "message"
        )
        if last is None or last.kind != kind:
            last = self._new(kind, "rs" if kind == "reasoning" else "msg")
        last.text += piece.text
        return last

    def _new(self, kind: Literal["reasoning", "message", "function_call"], prefix: str) -> _Item:
        item = _Item(kind, f"{prefix}_{uuid4().hex}", self._count)
        self._count += 1
        self._items.append(item)
        return item

    def _opened(self, item: _Item) -> Iterator[bytes]:
        empty = _Item(item.kind, item.id, item.index, "", item.name, item.call_id)
        told = empty.told("in_progress")
        yield self._event("response.output_item.added", output_index=item.index, item=told)
        if item.kind != "function_call":
            part = empty.part()
            yield self._event("response.content_part.added", **_place(item), part=part)

    def _grown(self, item: _Item, piece: Said | Called) -> bytes:
        if isinstance(piece, Called):
            return self._event(
                "response.function_call_arguments.delta",
                item_id=item.id, output_index=item.index, delta=piece.arguments,
            )  # fmt: skip
        kind = f"response.{item.content_type}.delta"
        return self._event(kind, **_place(item), delta=piece.text, logprobs=[])

    def _closed(self, item: _Item | None) -> Iterator[bytes]:
        if item is None:
            return
        if item.kind == "function_call":
            yield self._event(
                "response.function_call_arguments.done",
                item_id=item.id, output_index=item.index, name=item.name, arguments=item.text,
            )  # fmt: skip
        else:
            kind = f"response.{item.content_type}.done"
            yield self._event(kind, **_place(item), text=item.text, logprobs=[])
            yield self._event("response.content_part.done", **_place(item), part=item.part())
        told = item.told("completed")
        yield self._event("response.output_item.done", output_index=item.index, item=told)

    def _response(self, ended: Ended) -> dict[str, Any]:
        cut = ended.finish == "length"
        status = "incomplete" if cut else "completed"
        return {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [item.told("completed") for item in self._items],
            "usage": _usage(ended.usage),
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        told = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return frame(told, kind)


def _place(item: _Item) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.index, "content_index": 0}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.reused_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
