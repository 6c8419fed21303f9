"""What a client can ask of model and server: its facts, tokens, prompts, health, metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from q35chat.json_reader import Fields
from q35chat.server.body import objects, read_body, text
from q35chat.server.conversation import tools_of
from q35chat.server.exchange import reader_of
from q35chat.server.sampling import settings_of, with_thinking
from q35chat.server.service import Asked, Service
from q35chat.server.streams import as_json

_STARTED: Final = int(time.time())


async def models(_request: Request, service: Service) -> Response:
    """The one model, with its capacity."""
    return as_json({"object": "list", "data": [_model(service)]})


async def model(_request: Request, service: Service) -> Response:
    """The model, by whatever name."""
    return as_json(_model(service))


async def tokenize(request: Request, service: Service) -> Response:
    """The ids of a text (`prompt` or `content`), or of the prompt of `messages`."""
    body = await read_body(request, service.most_body)

    def ids() -> list[int]:
        if body.has("messages"):
            found: list[int] = service.prompt(_conversation(body, service)).ids.tolist()
            return found
        return service.engine.tokenizer.encode(_text(body))

    found = await asyncio.to_thread(ids)
    return as_json(
        {"tokens": found, "count": len(found), "max_model_len": service.engine.model.capacity}
    )


async def apply_template(request: Request, service: Service) -> Response:
    """The prompt of `messages` as text."""
    body = await read_body(request, service.most_body)

    def prompt() -> str:
        ids = service.prompt(_conversation(body, service)).ids.tolist()
        return service.engine.tokenizer.spelled(ids)

    return as_json({"prompt": await asyncio.to_thread(prompt)})


async def health(_request: Request, service: Service) -> Response:
    """Whether questions are taken."""
    if service.desk.closed:
        return as_json({"status": "stopping"}, 503)
    return as_json({"status": "ok"})


async def metrics(_request: Request, service: Service) -> Response:
    """Counts for Prometheus."""
    return Response(service.metrics.page(), headers={"content-type": CONTENT_TYPE_LATEST})


def _model(service: Service) -> dict[str, Any]:
    info = service.engine.model
    return {
        "id": info.name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "q35chat",
        "max_model_len": info.capacity,
        "meta": {
            "target": info.target,
            "precision": info.precision,
            "device": info.device,
            "pictures": info.pictures,
            "reasoning_efforts": list(info.offers.efforts),
        },
    }


def _conversation(body: Fields, service: Service) -> Asked:
    settings = settings_of(body, service.defaults)
    info = service.engine.model
    settings = with_thinking(body, settings, info.capacity, info.offers.efforts, None)
    turns = reader_of(service).turns(objects(body, "messages"))
    return Asked(settings, turns=turns, tools=tools_of(body))


def _text(body: Fields) -> str:
    return text(body, "prompt" if body.has("prompt") else "content")
