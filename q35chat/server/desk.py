"""The desk has one answer at a time computed, the clients in turn, and hands its events over.

A thread of its own computes, so that no slow reader holds it up; events wait in a queue of the
event loop. Whoever goes away is answered no further than the step that runs. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished
from q35chat.chat.prompt.template import Prompt
from q35chat.chat.values import ChatSettings, TurnOptions
from q35chat.errors import Q35Error
from q35chat.server.metrics import Metrics
from q35chat.server.problems import RefusedError

_log = logging.getLogger(__name__)
_LONGEST_WAIT = 60


@dataclass(frozen=True, slots=True, eq=False)
class AnswerJob:
    """What is to be answered. `client` is who asks; `owner` names the conversation whose state may
    be kept, and `follow_up` makes of the end of the answer the prompt that the next question of it
    will begin with."""

    prompt: Prompt
    settings: ChatSettings
    options: TurnOptions
    client: str
    owner: str
    follow_up: Callable[[Finished], Prompt]


class Answering:
    """A job on its way: its events for one reader in the event loop."""

    def __init__(self, job: AnswerJob) -> None:
        self.job = job
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue()
        asked = threading.Event()
        self.cancel, self.cancelled = asked.set, asked.is_set

    def put(self, event: Event | Exception) -> None:
        """Hand `event` over, from the thread that computes."""
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def events(self) -> AsyncGenerator[Event]:
        """The events up to the end. Raises what was raised for one; left early, it is cancelled."""
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self.cancel()


class Desk:
    """At most `most_waiting` jobs wait beside the one that is answered."""

    def __init__(self, engine: ChatEngine, metrics: Metrics, most_waiting: int) -> None:
        self._engine = engine
        self._metrics = metrics
        self._most_waiting = most_waiting
        self._waiting: OrderedDict[str, deque[Answering]] = OrderedDict()
        self._changed = threading.Condition()
        self._current: Answering | None = None
        self._closed = False
        self._mean_s = 1.0
        self._last: tuple[AnswerJob, Finished] | None = None
        self._thread = threading.Thread(target=self._work, name="q35chat-desk", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def closed(self) -> bool:
        """Whether nothing is begun any more."""
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a job is being answered."""
        return self._current is not None

    def submit(self, job: AnswerJob) -> Answering:
        """Have `job` answered in its turn; in the event loop. Raises RefusedError where too many
        wait."""
        answering = Answering(job)
        with self._changed:
            if self._closed:
                raise _stopping()
            if (waiting := self.waiting) >= self._most_waiting:
                self._metrics.refused()
                seconds = min(math.ceil(self._mean_s * waiting), _LONGEST_WAIT)
                raise RefusedError(
                    f"{waiting} requests wait already, no more than {self._most_waiting} may: "
                    f"send it again in {max(seconds, 1)} s",
                    503,
                    code="queue_full",
                    retry_after=max(seconds, 1),
                )
            self._waiting.setdefault(job.client, deque()).append(answering)
            self._changed.notify()
        return answering

    def close(self) -> None:
        """End the answer that is computed after its step, and all that wait."""
        with self._changed:
            self._closed = True
            current = self._current
            self._changed.notify()
        if current is not None:
            current.cancel()

    def wait(self) -> None:
        """Wait until nothing is computed any more, after `close`."""
        self._thread.join()

    def _next(self) -> Answering | None:
        """The oldest job of the client that has waited longest; None after `close`."""
        with self._changed:
            self._current = None
            while not self._closed and not self._waiting:
                self._changed.wait()
            if self._closed:
                left = [one for jobs in self._waiting.values() for one in jobs]
                self._waiting.clear()
                for answering in left:
                    answering.put(_stopping())
                return None
            client, jobs = self._waiting.popitem(last=False)
            answering = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs
            self._current = answering
            return answering

    def _work(self) -> None:
        while (answering := self._next()) is not None:
            if answering.cancelled():
                self._metrics.went_away()
                continue
            started = perf_counter()
            try:
                self._answer(answering)
            except Exception as error:  # noqa: BLE001  (whoever asked is told)
                self._last = None
                if not isinstance(error, RefusedError):
                    _log.exception("a request could not be answered")
                self._metrics.failed()
                self._current = None
                answering.put(error)
            self._mean_s += 0.2 * (perf_counter() - started - self._mean_s)

    def _answer(self, answering: Answering) -> None:
        job = answering.job
        self._set_aside(job.prompt)
        events = self._engine.answer(job.prompt, job.settings, answering.cancelled, job.options)
        for event in events:
            self._metrics.saw(event)
            if isinstance(event, Finished):
                self._last = job, event
                if event.reason == "cancelled" and self._closed:
                    raise _stopping(event.usage.completion_tokens)
                self._current = None  # who has the last event finds that nothing runs
            answering.put(event)

    def _set_aside(self, prompt: Prompt) -> None:
        """Keep the state of the conversation before, unless `prompt` goes on with it."""
        if self._last is None:
            return
        job, finished = self._last
        end = job.prompt.ends[-1] if job.prompt.ends else 0
        if end and np.array_equal(prompt.keys[:end], job.prompt.keys[:end]):
            return
        self._last = None
        try:
            follow_up = job.follow_up(finished)
        except Q35Error as error:  # a template may refuse what comes behind an answer
            _log.info("a state is not kept: %s", error)
            return
        self._engine.keep_prompt(follow_up, job.owner, lambda: False, shared=True)


def _stopping(tokens: int | None = None) -> RefusedError:
    written = "" if tokens is None else f"; {tokens:,} tokens of the answer were written"
    return RefusedError(
        f"the server is stopping{written}", 503, code="server_stopping", retry_after=5
    )
