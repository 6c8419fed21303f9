"""A growing answer, written to disk beside the computation: a tenth of a second later, and a very
long one, which is written whole every time, never later than half a second.

The thread that computes only appends to lists; another one writes, so that neither a slow disk
nor a busy database costs a token, and a slow step does not keep the last token unsaved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from q35chat.chat.events import Event, Finished, FinishReason, Notice, Token, Usage
from q35chat.chat.history.records import TurnRecord
from q35chat.chat.worker import Worker
from q35chat.errors import StoreError

INTERVAL_S = 0.1
LONGEST_S = 0.5
_S_A_TOKEN = 50e-6  # so that a long answer takes no more of the disk than one of 2,000 tokens


class AnswerRecorder:
    """Collects the events of one answer, on top of what `base` already says.

    Token ids are kept where `base.tokenizer` names their vocabulary.
    """

    def __init__(
        self,
        base: TurnRecord,
        write: Callable[[TurnRecord], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._base = base
        self._write = write
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._ids: list[int] = []
        self._notes: list[str] = []
        self._usage: Usage | None = None
        self._finish: FinishReason | None = None
        self._seen = 0
        self._problem = ""
        self._writing = False
        self._writer = Worker()

    def close(self) -> None:
        """Write no more."""
        self._writer.stop()

    @property
    def started(self) -> bool:
        """Whether there is anything of the answer."""
        return self._seen > 0

    def take(self, event: Event) -> None:
        """Add what the event brings."""
        with self._lock:
            if isinstance(event, Token):
                (self._answer if event.kind == "answer" else self._reasoning).append(event.text)
                self._ids += [] if event.id is None else [event.id]
            elif isinstance(event, Notice):
                self._notes.append(event.text)
            elif isinstance(event, Finished):
                self._finish, self._usage = event.reason, event.usage
                self._ids = list(event.token_ids)
            else:
                return
            self._seen += 1
        if not self._writing:
            self._writing = True
            self._writer.soon(self._keep_writing)

    def end(self, finish: FinishReason | None, note: str = "") -> None:
        """Say how it ended when no `Finished` came."""
        with self._lock:
            if self._usage is None:
                self._finish = finish
                self._notes += [note] if note else []

    def problem(self) -> str:
        """Why the answer could not be written, once; then empty until the next trouble."""
        with self._lock:
            problem, self._problem = self._problem, ""
        return problem

    def record(self) -> TurnRecord:
        """The answer so far."""
        return self._so_far()[0]

    def _so_far(self) -> tuple[TurnRecord, int]:
        """The answer, and how many events it is made of."""
        with self._lock:
            turn = self._base.turn
            turn = replace(
                turn,
                text=turn.text + "".join(self._answer),
                reasoning=turn.reasoning + "".join(self._reasoning),
                token_ids=(*turn.token_ids, *self._ids) if self._base.tokenizer else (),
                finish=self._finish,
            )
            note = " · ".join(part for part in (self._base.note, *self._notes) if part)
            return replace(self._base, turn=turn, note=note, usage=self._usage), self._seen

    def _keep_writing(self, ended: threading.Event) -> None:
        written, troubled = 0, False
        before = len(self._base.turn.token_ids)
        while not ended.wait(pause_s(before + self._seen, self._interval_s)):
            if self._seen == written:
                continue
            record, seen = self._so_far()
            try:
                self._write(record)
            except StoreError as error:
                if not troubled:
                    with self._lock:
                        self._problem = str(error)
                troubled = True
            else:
                written, troubled = seen, False


def pause_s(tokens: int, interval_s: float = INTERVAL_S) -> float:
    """Seconds before an answer of so many tokens is written again."""
    return max(interval_s, min(tokens * _S_A_TOKEN, LONGEST_S))
