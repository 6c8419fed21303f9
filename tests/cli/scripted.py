"""A model that answers from a script, and consoles that remember what they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    TokenKind,
    Usage,
    VisionProgress,
)
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.console import Console
from q35chat.commands.model import LoadedModel
from q35chat.errors import Q35Error
from tests.doubles.scripted_backend import ScriptedBackend

TIMES = (4.0, 1.0, 3.0, 2.0)


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Recorded:
    """A console whose two streams can be read back."""

    console: Console
    out: StringIO
    err: StringIO


def recorded(*, terminal: bool = False) -> Recorded:
    out, err = (Terminal(), Terminal()) if terminal else (StringIO(), StringIO())
    return Recorded(Console(out, err), out, err)


def token(text: str, kind: TokenKind = "answer", ident: int | None = 1) -> Token:
    return Token(ident, text, kind, predict_ms=1.0, wall_ms=2.0, slots_free=50)


def finished(
    text: str = "",
    reasoning: str = "",
    reason: FinishReason = "stop",
    times: tuple[float, ...] = TIMES,
) -> Finished:
    usage = Usage(
        prompt_tokens=100,
        reused_tokens=20,
        image_tokens=64,
        reasoning_tokens=1,
        completion_tokens=4,
        capacity_total=2048,
        capacity_used=104,
        timings=Timings(12.0, 800.0, 850.0, tuple(t / 2 for t in times), times),
    )
    return Finished(reason, text, reasoning, (7, 8, 9, 2), usage)


def turn_events(*texts: str, reasoning: Sequence[str] = ()) -> list[Event]:
    """A whole turn: plan, progress, tokens, end."""
    return [
        PromptPlan(100, 20, 64, 2048),
        VisionProgress(1, 1),
        PrefillProgress(80, 80, 100.0),
        *(token(text, "reasoning") for text in reasoning),
        *(token(text) for text in texts),
        finished("".join(texts), "".join(reasoning)),
    ]


class EventBackend(ScriptedBackend):
    """Answers every turn with `events`, or raises `error`; remembers what it was asked."""

    def __init__(self, events: Sequence[Event] = (), error: Q35Error | None = None) -> None:
        super().__init__()
        self.events, self.error = events, error
        self.asked: list[tuple[Sequence[Turn], ChatSettings]] = []

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        self.asked.append((turns, settings))
        if self.error:
            raise self.error
        yield from self.events

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> None:
        raise AssertionError("a command that ends reads nothing ahead")


def loaded(backend: ScriptedBackend, sampling: SamplingSettings | None = None) -> LoadedModel:
    return LoadedModel(backend, sampling or SamplingSettings())
