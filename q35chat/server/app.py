"""The application: which path is answered by what, and what failures look like.

Runs under any ASGI server, and in a test without one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from q35chat.errors import Q35Error
from q35chat.server import facts
from q35chat.server.chat_completions import chat_completions
from q35chat.server.completions import completions
from q35chat.server.gate import Gate, Rules
from q35chat.server.messages import count_tokens, messages
from q35chat.server.problems import RefusedError, problem_of
from q35chat.server.responses import responses
from q35chat.server.service import Service
from q35chat.server.streams import as_json

_log = logging.getLogger(__name__)

Handler = Callable[[Request, Service], Awaitable[Any]]

_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("POST", "/v1/chat/completions"): chat_completions,
    ("POST", "/v1/completions"): completions,
    ("POST", "/v1/responses"): responses,
    ("POST", "/v1/messages"): messages,
    ("POST", "/v1/messages/count_tokens"): count_tokens,
    ("GET", "/v1/models"): facts.models,
    ("GET", "/v1/models/{name:path}"): facts.model,
    ("POST", "/tokenize"): facts.tokenize,
    ("POST", "/apply-template"): facts.apply_template,
    ("GET", "/health"): facts.health,
    ("GET", "/metrics"): facts.metrics,
}


def application(service: Service, rules: Rules = Rules()) -> ASGIApp:  # noqa: B008  (a value)
    """The ASGI application over `service`, for those whom `rules` let in."""
    routes = [
        Route(path, _route(answer, service), methods=[method])
        for (method, path), answer in _ROUTES.items()
    ]
    made: ASGIApp = Starlette(
        routes=routes,
        middleware=[Middleware(Gate, rules=rules)],
        exception_handlers={HTTPException: _unknown, Q35Error: _refused, Exception: _failed},
    )
    return made


def _route(answer: Handler, service: Service) -> Callable[[Request], Awaitable[Any]]:
    async def answered(request: Request) -> Any:  # noqa: ANN401  (an ASGI response)
        return await answer(request, service)

    return answered


async def _unknown(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    what = f"{request.method} {request.url.path} is not answered here: see the README"
    return _said(request, RefusedError(what, status, code="not_found"))


async def _refused(request: Request, error: Exception) -> Response:
    return _said(request, problem_of(error))


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return _said(request, problem_of(error))


def _said(request: Request, problem: RefusedError) -> Response:
    return as_json(problem.body(request.url.path), problem.status, problem.headers)
