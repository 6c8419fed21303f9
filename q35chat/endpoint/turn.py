"""One turn of a server as events: what comes is told as it comes, its clocks are those of arrival.

Owns why a turn ends and what it counted. What the server tells of counts wins over what was counted
here; a turn that goes round in circles is ended here.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Final

from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Notice,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    TokenKind,
    Usage,
)
from q35chat.chat.turn.limits import LoopGuard
from q35chat.chat.values import ChatSettings
from q35chat.endpoint.answer import Part, TokenCounts
from q35chat.text import safe_line

Parts = Generator[tuple[Part, float] | None, None, None]
"""What came, each with the second of `time.perf_counter` when it came; None first, when the server
has taken the request."""

_SPARE: Final = 8
"""A part has no more tokens than bytes and so many, for what has no text."""
_ENDINGS: Final[dict[str, FinishReason]] = {"stop": "stop", "length": "length"}


class RemoteTurn:
    """The events of `parts`, which answer the prompt of `plan`."""

    def __init__(
        self,
        parts: Parts,
        plan: PromptPlan,
        settings: ChatSettings,
        should_stop: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._plan = plan
        self._settings = settings
        self._should_stop = should_stop
        self._guard = LoopGuard()
        self._texts: dict[TokenKind, list[str]] = {"reasoning": [], "answer": []}
        self._made: dict[TokenKind, int] = {"reasoning": 0, "answer": 0}
        self._steps: list[tuple[float, int]] = []
        self._first_at = self._last_at = 0.0
        self._started = time.perf_counter()
        self._counts = TokenCounts()
        self._finish = ""
        self._most = 0
        self._reason: FinishReason | None = None

    def events(self) -> Iterator[Event]:
        """Run the turn. Raises CapacityError and EndpointError, before the first event where the
        server does not take the request."""
        with closing(self._parts) as parts:
            next(parts, None)
            yield self._plan
            for part in parts:
                if part is not None:
                    yield from self._take(*part)
                if self._reason is None and self._should_stop():
                    self._reason = "cancelled"
                if self._reason is not None:
                    break
        if self._reason is None and not self._finish and self._should_stop():
            self._reason = "cancelled"
        usage = self.usage()
        reason = self._reason or self._ending(usage)
        if remark := self._remark(reason):
            yield Notice(remark)
        text, reasoning = "".join(self._texts["answer"]), "".join(self._texts["reasoning"])
        yield Finished(reason, text, reasoning, (), usage)

    @property
    def counts(self) -> TokenCounts:
        """What the server told of the turn so far."""
        return self._counts

    def usage(self) -> Usage:
        """The turn in numbers, as they stand now."""
        here = self._made["reasoning"] + self._made["answer"]
        completion = here if self._counts.completion is None else self._counts.completion
        reasoning = self._counts.reasoning
        if reasoning is None:
            reasoning = round(completion * self._made["reasoning"] / here) if here else 0
        prompt = self._plan.prompt_tokens if self._counts.prompt is None else self._counts.prompt
        first_ms = (self._first_at - self._started) * 1e3 if self._first_at else 0.0
        wall_ms = spread(self._steps, max(min(completion, self._most) - 1, 0))
        image = self._plan.image_tokens
        if image:  # the text is counted, so what is more or less than planned is pictures
            image = min(max(image + prompt - self._plan.prompt_tokens, 0), prompt)
        return Usage(
            prompt_tokens=prompt,
            reused_tokens=min(self._counts.cached or 0, prompt),
            image_tokens=image,
            reasoning_tokens=min(reasoning, completion),
            completion_tokens=completion,
            capacity_total=self._plan.capacity,
            capacity_used=min(prompt + completion, self._plan.capacity),
            timings=Timings(
                prefill_ms=first_ms,
                first_token_ms=first_ms,
                predict_ms=(0.0,) * len(wall_ms),
                wall_ms=wall_ms,
            ),
        )

    def _take(self, part: Part, at: float) -> Iterator[Event]:
        if part.progress is not None:
            done, total, ms = part.progress.done, part.progress.total, part.progress.ms
            yield PrefillProgress(min(done, total), total, done / ms * 1e3 if ms else 0.0)
        known = self._counts.completion or 0
        if part.counts is not None:
            self._counts = _newer(self._counts, part.counts)
        grown = (self._counts.completion or 0) - known
        self._finish = part.finish or self._finish
        both: tuple[tuple[TokenKind, str], ...] = (
            ("reasoning", part.reasoning),
            ("answer", part.text),
        )
        for kind, text in both:
            if text:
                most = len(text.encode()) + _SPARE
                self._most += most
                made = min(max(grown, 1), most)
                yield self._token(kind, text, made, at)
                grown -= made

    def _token(self, kind: TokenKind, text: str, made: int, at: float) -> Token:
        wall_ms = 0.0
        if self._first_at:
            wall_ms = (at - self._last_at) * 1e3
            self._steps.append((wall_ms, made))
        else:
            self._first_at = at
        self._last_at = at
        self._texts[kind].append(text)
        self._made[kind] += made
        if self._guard.push(zlib.crc32(text.encode())) and self._settings.loop_guard:
            self._reason = "loop"
        used = self._plan.prompt_tokens + self._made["reasoning"] + self._made["answer"]
        free = max(self._plan.capacity - used, 0)
        return Token(None, text, kind, 0.0, wall_ms / made, free, made)

    def _ending(self, usage: Usage) -> FinishReason:
        reason = _ENDINGS.get(self._finish, "stop")
        if reason == "length" and usage.capacity_free == 0:
            return "capacity"
        return reason

    def _remark(self, reason: FinishReason) -> str:
        """What the user should know of why it ended, beyond the reason."""
        if reason == "length" and self._settings.max_new_tokens is None:
            return "the server ended it at a limit of its own"
        if reason == "stop" and self._finish not in _ENDINGS:
            word = safe_line(self._finish, 40)
            return f"the server ended it: {word}" if word else ""
        return ""


def spread(steps: list[tuple[float, int]], count: int) -> tuple[float, ...]:
    """The milliseconds of `count` tokens that arrived in `steps`, each the time since the one
    before and how many tokens it is thought to have: as many more or fewer for each as make up the
    count, which share its time. The sum stays what it was."""
    thought = sum(made for _, made in steps)
    if not thought or not count:
        return ()
    found: list[float] = []
    passed, owed_ms = 0, 0.0
    for wall_ms, made in steps:
        passed += made
        owed_ms += wall_ms
        new = passed * count // thought - len(found)
        if new:
            found += [owed_ms / new] * new
            owed_ms = 0.0
    return tuple(found)


def _newer(before: TokenCounts, now: TokenCounts) -> TokenCounts:
    """What is told `now`, and of the rest what was told `before`."""
    return TokenCounts(
        prompt=before.prompt if now.prompt is None else now.prompt,
        completion=before.completion if now.completion is None else now.completion,
        cached=before.cached if now.cached is None else now.cached,
        reasoning=before.reasoning if now.reasoning is None else now.reasoning,
    )
