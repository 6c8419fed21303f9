"""An answer as any protocol tells it: reasoning, text, calls of tools, and how it ended.

Made of the events of a turn. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from q35chat.chat.events import (
    Event,
    Finished,
    Likelihood,
    PromptLikelihoods,
    PromptPlan,
    Token,
    Usage,
)
from q35chat.server.answers import OwnAnswers
from q35chat.server.desk import Answering
from q35chat.server.tool_calls import CallPiece, CallStream

FinishWord = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Said:
    """More reasoning or text; `likelihoods` are those of the tokens that released it, with the
    token's id. `undoes` is the id of a call that turned out to be no more than this text."""

    kind: Literal["reasoning", "text"]
    text: str
    likelihoods: tuple[tuple[int, Likelihood], ...] = ()
    undoes: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """More of the arguments of the call number `index`; `name` where it begins."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end. `reason` is the engine's own word where that says more than `finish`; `last` is the
    last token, -1 where there is none."""

    finish: FinishWord
    reason: str
    usage: Usage
    last: int = -1


ReplyEvent = PromptPlan | PromptLikelihoods | Said | Called | Ended


@dataclass(slots=True)
class Whole:
    """All of an answer; `calls` are id, name and arguments by their number."""

    reasoning: str = ""
    text: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    likelihoods: list[tuple[int, Likelihood]] = field(default_factory=list)
    prompt_likelihoods: tuple[tuple[int, Likelihood], ...] = ()


@dataclass(frozen=True, slots=True)
class Parsing:
    """How calls are found in an answer: the `schemas` of the tools that there are, and whether
    the answer is `forced` to be a call."""

    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forced: bool = False


async def pieces(
    answering: Answering, parsing: Parsing, answers: OwnAnswers, whole: Whole
) -> AsyncGenerator[ReplyEvent]:
    """The answer piece by piece, its plan first; `whole` holds all of it in the end, without broken
    calls. What the model wrote is remembered in `answers`."""
    telling = _Telling(parsing, answers, whole)
    async for event in answering.events():
        for piece in telling.of(event):
            yield piece


async def read_whole(
    answering: Answering,
    told: AsyncGenerator[ReplyEvent],
    take: Callable[[Said | Called], object] | None = None,
) -> Ended:
    """How an answer ended that is told as one object, each piece of it given to `take`. It is
    cancelled where nobody waits for it any more."""
    ended = None
    try:
        async for piece in told:
            ended = piece if isinstance(piece, Ended) else None
            if take is not None and isinstance(piece, Said | Called):
                take(piece)
    finally:
        answering.cancel()
    assert ended is not None
    return ended


class _Telling:
    """Makes pieces of the events of one turn."""

    def __init__(self, parsing: Parsing, answers: OwnAnswers, whole: Whole) -> None:
        known = bool(parsing.schemas)
        self._calls = CallStream(parsing.schemas, forced=parsing.forced) if known else None
        self._answers = answers
        self._whole = whole
        self._likelihoods: list[tuple[int, Likelihood]] = []

    def of(self, event: Event) -> Iterator[ReplyEvent]:
        """What an event tells."""
        match event:
            case PromptPlan():
                yield event
            case PromptLikelihoods():
                self._whole.prompt_likelihoods = event.tokens
                yield event
            case Token(kind="reasoning"):
                if event.text:
                    self._whole.reasoning += event.text
                    yield Said("reasoning", event.text)
            case Token():
                if event.id is not None and event.likelihood is not None:
                    self._likelihoods.append((event.id, event.likelihood))
                parts = self._calls.push(event.text) if self._calls else [event.text]
                for part in parts:
                    if part:
                        yield self._told(part)
            case Finished():
                yield from map(self._told, self._calls.flush() if self._calls else ())
                ids = tuple(call[0] for call in self._whole.calls.values())
                self._answers.remember(self._whole.text, ids, event)
                yield _ended(event, called=bool(ids))

    def _told(self, part: str | CallPiece) -> ReplyEvent:
        whole = self._whole
        if isinstance(part, str):
            whole.text += part
            released, self._likelihoods = tuple(self._likelihoods), []
            whole.likelihoods += released
            return Said("text", part, released)
        if part.broken:
            undone = whole.calls.pop(part.index)
            whole.text += part.broken
            return Said("text", part.broken, undoes=undone[0])
        if part.name:
            whole.calls[part.index] = [f"call_{uuid4().hex[:24]}", part.name, ""]
        call = whole.calls[part.index]
        call[2] += part.arguments
        return Called(part.index, call[0], part.name, part.arguments)


def _ended(finished: Finished, *, called: bool) -> Ended:
    words: dict[str, FinishWord] = {"stop": "tool_calls" if called else "stop"}
    last = finished.token_ids[-1] if finished.token_ids else -1
    return Ended(words.get(finished.reason, "length"), finished.reason, finished.usage, last)
