"""`python -m tests.cli.scripted_main SCRIPT ARGUMENTS...`: q35chat with a scripted model.

For what only a process of its own can show: signals, pipes, exit codes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from q35chat.chat.events import Event
from q35chat.chat.values import ChatSettings, Turn
from q35chat.cli import main
from q35chat.commands import model
from tests.cli.scripted import EventBackend, finished, loaded, token, turn_events


class Waiting(EventBackend):
    """Says "go ", then waits until it is asked to stop, and ends the turn well."""

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        yield token("go ")
        while not should_stop():
            threading.Event().wait(0.001)
        yield token("end")
        yield finished("go end", reason="cancelled")


class Stubborn(EventBackend):
    """Says "go ", acknowledges the wish to stop with "no", and goes on for ever."""

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        yield token("go ")
        while not should_stop():
            threading.Event().wait(0.001)
        yield token("no ")
        threading.Event().wait()


class Endless(EventBackend):
    """Never stops talking."""

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        while not should_stop():
            yield token("word " * 100)


def _never_loads() -> model.LoadedModel:
    sys.stderr.write("loading\n")
    sys.stderr.flush()
    threading.Event().wait()
    raise AssertionError("woken")


SCRIPTS: dict[str, Callable[[], model.LoadedModel]] = {
    "brief": lambda: loaded(EventBackend(turn_events("Hi"))),
    "waiting": lambda: loaded(Waiting()),
    "stubborn": lambda: loaded(Stubborn()),
    "endless": lambda: loaded(Endless()),
    "loading": _never_loads,
}

if __name__ == "__main__":
    script = SCRIPTS[sys.argv.pop(1)]
    model.load_model = lambda choice, threads: script()
    main()
