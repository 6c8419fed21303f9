"""A comparison: another model answers the last question of a conversation, beside its own answer.

That model is loaded for this one answer and freed again. Its answer is kept nowhere until somebody
wants it as a version.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing

from q35chat.chat.backend import ChatBackend
from q35chat.chat.events import Event, Finished, as_generator
from q35chat.chat.history.records import TurnRecord, new_id
from q35chat.chat.history.tree import prompt_turns
from q35chat.chat.service import ModelInfo
from q35chat.chat.turn.lock import StoppableTurn, TurnLock
from q35chat.chat.values import ChatSettings, Turn
from q35chat.text import now

LoadOther = Callable[[ChatSettings], tuple[ChatBackend, ChatSettings]]
"""Loads the other model; gives the settings of the conversation as they are for it."""


class Comparison:
    """The turns in `path` end with the question; `keep` puts a turn into the conversation."""

    def __init__(
        self,
        path: Sequence[TurnRecord],
        settings: ChatSettings,
        lock: TurnLock,
        load: LoadOther,
        keep: Callable[[TurnRecord], None],
    ) -> None:
        self._path, self._settings, self._lock = path, settings, lock
        self._load, self._keep = load, keep
        self._run = StoppableTurn()
        self._backend: ChatBackend | None = None
        self._answer: TurnRecord | None = None
        self.model: ModelInfo | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer to keep."""
        return self._answer is not None

    def events(self) -> Iterator[Event]:
        """Load the other model, have it answer, free it. Raises Q35Error."""
        return self._run.follow(self._answering())

    def cancel(self) -> None:
        """Ask it to stop after its current step. Safe at any time; a model that is being loaded is
        freed once it is there."""
        self._run.stop()
        backend = self._backend
        if backend is not None:
            backend.interrupt()

    def keep(self) -> None:
        """Keep the other answer as a version, which is read from now on. Raises StoreError."""
        assert self._answer is not None
        self._keep(self._answer)

    def _answering(self) -> Generator[Event]:
        backend, settings = self._load(self._settings)
        try:
            self.model = backend.model
            if not self._run.stopped():
                with self._lock.passing(self._run):
                    yield from self._asked(backend, settings)
        finally:
            self._backend = None
            backend.close()

    def _asked(self, backend: ChatBackend, settings: ChatSettings) -> Generator[Event]:
        turns = prompt_turns(self._path, backend.vocabulary)
        with closing(as_generator(backend.run(turns, settings, self._run.stopped))) as events:
            self._backend = backend
            first = next(events)
            self._backend = None
            yield first
            for event in events:
                if isinstance(event, Finished):
                    self._answer = self._record(event, backend, settings)
                yield event

    def _record(
        self, finished: Finished, backend: ChatBackend, settings: ChatSettings
    ) -> TurnRecord | None:
        if not (finished.text or finished.reasoning):
            return None
        return TurnRecord(
            id=new_id(),
            parent=self._path[-1].id,
            turn=Turn.answer(finished),
            created=now(),
            model=backend.model.name,
            tokenizer=backend.vocabulary,
            settings=settings,
            usage=finished.usage,
        )
