"""What the tests of the whole chat on the NPU's path share: bundles, questions, how to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn

ROOT = Path(__file__).parents[2]
DEMO, PICTURES = ROOT / "assets" / "demo-model", ROOT / "assets" / "pictures"
GREEDY = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=24)
HELLO = Turn("user", "Hello, who are you?")

OpenChat = Callable[..., ChatEngine]
Bundles = Callable[..., Path]


def run(engine: ChatEngine, *turns: Turn, settings: ChatSettings = GREEDY) -> list[Event]:
    return list(engine.run(turns, settings, lambda: False))


def finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def ask(engine: ChatEngine, *turns: Turn) -> Finished:
    return finished(run(engine, *turns))
