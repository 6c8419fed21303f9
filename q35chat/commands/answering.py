"""One turn on the command line: run it in a worker, show its events, stop it on Ctrl+C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from q35chat.chat.backend import ChatBackend
from q35chat.chat.events import Event, Finished
from q35chat.chat.values import ChatSettings, Turn
from q35chat.commands.render import Renderer
from q35chat.commands.streaming import in_worker, stop_on_interrupt, stop_on_termination


def answer(
    backend: ChatBackend, turns: Sequence[Turn], settings: ChatSettings, renderer: Renderer
) -> Finished:
    """Answer `turns`, which nobody keeps, and show it; how it ended. Stops like `show_turn`."""
    stop = threading.Event()
    return show_turn(backend.run(turns, settings, stop.is_set), stop.set, renderer)


def show_turn(events: Iterator[Event], stop: Callable[[], None], renderer: Renderer) -> Finished:
    """Compute and show a turn; how it ended.

    Ctrl+C calls `stop`, which ends it after the current step, with what there is by then; SIGTERM
    does, too, and leaves the program after that. If nobody reads the output any more it is stopped,
    and BrokenPipeError raised.
    """
    finished: Finished | None = None
    try:
        with stop_on_termination(stop), stop_on_interrupt(stop):
            for event in in_worker(events):
                renderer.show(event)
                if isinstance(event, Finished):
                    finished = event
    except BrokenPipeError:
        raise
    except BaseException:
        renderer.close()
        raise
    finally:
        stop()
    if finished is None:
        raise RuntimeError("the turn ended without telling how")
    return finished
