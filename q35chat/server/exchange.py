"""The way of every request for an answer: read, queued, and answered whole or as it is written.

Knows no protocol: what the fields mean and how an answer is told, each protocol says itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from q35chat.json_reader import Fields
from q35chat.server.body import read_body, text
from q35chat.server.conversation import MessageReader
from q35chat.server.desk import Answering
from q35chat.server.service import Asked, Service
from q35chat.server.streams import EventStream, unless_gone


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, read: what is asked, and whether the answer is wanted as it is written."""

    asked: Asked
    stream: bool


class ProtocolReply(Protocol):
    """One response in the words of a protocol."""

    async def whole(self) -> Any:  # noqa: ANN401  (ASGI)
        """The answer as one object."""

    def frames(self) -> AsyncGenerator[bytes]:
        """The answer as it comes."""


W = TypeVar("W", bound=Wanted)


async def exchange(
    request: Request,
    service: Service,
    read: Callable[[Fields, Service, str], W],
    reply: Callable[[Service, W, Answering], ProtocolReply],
) -> Any:  # noqa: ANN401  (ASGI)
    """Answer a request that `read` makes out of its body for a client, as `reply` tells it."""
    body = await read_body(request, service.most_body)
    wanted = await asyncio.to_thread(read, body, service, _client_of(request, body))
    answering = service.submit(await asyncio.to_thread(service.job, wanted.asked))
    told = reply(service, wanted, answering)
    if wanted.stream:
        return EventStream(told.frames(), answering.cancel)
    return await unless_gone(request, told.whole())


def _client_of(request: Request, body: Fields) -> str:
    """Who asks, for taking turns: the machine, the program, and the user that it names."""
    host = request.client.host if request.client else ""
    agent = request.headers.get("user-agent", "")
    return f"{host} {agent} {text(body, 'user', '')}"


def reader_of(service: Service) -> MessageReader:
    """The reader of messages for the service's model."""
    return MessageReader(service.engine, service.answers, service.defaults.max_image_tokens)
