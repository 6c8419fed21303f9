"""The gate refuses who may not ask: another host's name, another site's page, no key.

A page in a browser can reach the loopback address; a name that it made point here is told by the
`Host` header, its own address by `Origin`. Knows nothing of what is asked.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from q35chat.server.problems import RefusedError
from q35chat.server.streams import as_json

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_FREE: Final = "/health"
"""What anybody may ask who comes by the right name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask. `key` is empty where none is needed; `hosts` are the names by which the server
    may be called, none of which matters where they are empty; `origins` are the sites whose pages
    may ask."""

    key: str = ""
    hosts: tuple[str, ...] = LOOPBACK
    origins: tuple[str, ...] = ()


class Gate:
    """In front of `app`."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        shared = _shared(origin if origin in self._rules.origins else "")
        if shared and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=shared)(scope, receive, send)
            return
        problem = self._problem(scope["path"], headers, origin)
        if problem is not None:
            refusal = as_json(problem.body(scope["path"]), problem.status, shared)
            await refusal(scope, receive, send)
            return

        async def sharing(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(shared)
            await send(message)

        await self._app(scope, receive, sharing if shared else send)

    def _problem(self, path: str, headers: Headers, origin: str) -> RefusedError | None:
        host = headers.get("host", "")
        if self._rules.hosts and _name(host) not in self._rules.hosts:
            return RefusedError(f"this server is not called {host[:200]!r}", 403, code="wrong_host")
        if origin and origin not in self._rules.origins and origin.partition("://")[2] != host:
            return RefusedError(
                f"pages of {origin[:200]!r} may not ask: start the server with it",
                403,
                code="wrong_origin",
            )
        if self._rules.key and path != _FREE and not self._knows_key(headers):
            return RefusedError(
                "no valid key: send it as Authorization: Bearer KEY", 401, code="invalid_api_key"
            )
        return None

    def _knows_key(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        candidates = (given.strip() if scheme.lower() == "bearer" else "",
                      headers.get("x-api-key", ""))  # fmt: skip
        key = self._rules.key.encode()
        return any(hmac.compare_digest(one.encode(), key) for one in candidates)


def _name(host: str) -> str:
    """A `Host` header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _shared(origin: str) -> dict[str, str]:
    """Headers that let a page of `origin` read the response."""
    if not origin:
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-headers": "authorization, content-type, x-api-key",
        "access-control-allow-methods": "GET, POST",
        "vary": "Origin",
    }
