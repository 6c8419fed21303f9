"""An answer as any protocol tells it: reasoning, text, calls of tools, and how it ended.

Made of the events of a turn. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from q35chat.chat.events import Finished, Likelihood, Token, Usage
from q35chat.server.answers import OwnAnswers
from q35chat.server.desk import Answering
from q35chat.server.tool_calls import CallPiece, CallStream

FinishWord = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Said:
    """More reasoning or text; `likelihoods` are those of the tokens that released it, with the
    token's id."""

    kind: Literal["reasoning", "text"]
    text: str
    likelihoods: tuple[tuple[int, Likelihood], ...] = ()


@dataclass(frozen=True, slots=True)
class Called:
    """More of the arguments of the call number `index`; `name` where it begins."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end. `reason` is the engine's own word where that says more than `finish`."""

    finish: FinishWord
    reason: str
    usage: Usage


Piece = Said | Called | Ended


@dataclass(slots=True)
class Whole:
    """All of an answer; `calls` are id, name and arguments by their number."""

    reasoning: str = ""
    text: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    likelihoods: list[tuple[int, Likelihood]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Parsing:
    """How calls are found in an answer: the `schemas` of the tools that there are, and whether
    the answer is `forced` to be a call."""

    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forced: bool = False


async def pieces(
    answering: Answering, parsing: Parsing, answers: OwnAnswers, whole: Whole
) -> AsyncGenerator[Piece]:
    """The answer piece by piece; `whole` holds all of it in the end, without broken calls. What the
    model wrote is remembered in `answers`."""
    stream = CallStream(parsing.schemas, forced=parsing.forced) if parsing.schemas else None
    pending: list[tuple[int, Likelihood]] = []
    async for event in answering.events():
        match event:
            case Token(kind="reasoning"):
                if event.text:
                    whole.reasoning += event.text
                    yield Said("reasoning", event.text)
            case Token():
                if event.id is not None and event.likelihood is not None:
                    pending.append((event.id, event.likelihood))
                    whole.likelihoods.append((event.id, event.likelihood))
                for piece in stream.push(event.text) if stream else (event.text,):
                    if piece:
                        yield _told(piece, whole, pending)
                        pending = []
            case Finished():
                for piece in stream.flush() if stream else ():
                    yield _told(piece, whole, pending)
                    pending = []
                ids = tuple(call[0] for call in whole.calls.values())
                answers.remember(whole.text, ids, event)
                yield _ended(event, called=bool(ids))


def _told(piece: str | CallPiece, whole: Whole, likelihoods: list[tuple[int, Likelihood]]) -> Piece:
    if isinstance(piece, str):
        whole.text += piece
        return Said("text", piece, tuple(likelihoods))
    if piece.broken:
        whole.calls.pop(piece.index, None)
        whole.text += piece.broken
        return Said("text", piece.broken)
    if piece.name:
        whole.calls[piece.index] = [f"call_{uuid4().hex[:24]}", piece.name, ""]
    call = whole.calls[piece.index]
    call[2] += piece.arguments
    return Called(piece.index, call[0], piece.name, piece.arguments)


def _ended(finished: Finished, *, called: bool) -> Ended:
    words: dict[str, FinishWord] = {"stop": "tool_calls" if called else "stop"}
    return Ended(words.get(finished.reason, "length"), finished.reason, finished.usage)
