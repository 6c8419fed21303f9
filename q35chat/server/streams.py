"""Responses over the wire: JSON, and events as they come, ended when the client goes away.

Knows HTTP and server-sent events; knows no protocol's fields.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from q35chat.server.problems import RefusedError

T = TypeVar("T")


def as_json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response of JSON."""
    content = json.dumps(value, ensure_ascii=False).encode()
    return Response(content, status, headers, media_type="application/json")


def frame(value: object, event: str = "") -> bytes:
    """One server-sent event; its type where the protocol names it."""
    data = json.dumps(value, ensure_ascii=False)
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()


class EventStream:
    """A response of server-sent events, `frames`; `over` is called at its end, which comes at once
    where the client goes."""

    def __init__(self, frames: AsyncGenerator[bytes], over: Callable[[], object]) -> None:
        self._frames = frames
        self._over = over

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames until they end or the client goes."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._over()
            for task in (sending, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sending

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"),
                   (b"cache-control", b"no-store")]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for data in self._frames:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._frames.aclose()


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """What `work` gives; it is cancelled where the client goes away, and RefusedError is raised."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise RefusedError("the client went away", 499)
        return doing.result()
    finally:
        leaving.cancel()
        if not doing.done():
            doing.cancel()
            with suppress(asyncio.CancelledError):
                await doing


async def _gone(receive: Receive) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
