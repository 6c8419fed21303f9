"""A `ChatBackend` that speaks from a script: a letter is a token, and nothing is computed.

Deterministic: the same turns and settings give the same events. It refuses, stops, fails and
fills its slots as the real one does, and counts what a live state would reuse. A test that must see
a turn half-way gives the reply a `Gate` and lets tokens through one by one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
    VisionProgress,
)
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.errors import CapacityError, PictureError, RuntimeFailure

PICTURE_TOKENS = 4
PATIENCE_S = 60.0
"""Longer than any test: a thread that waits for ever would outlive the tests and hang their end."""
_LOOKS_UP_S = 0.02
SYSTEM, USER, ASSISTANT, END, THOUGHT, PICTURE = (0x110000 + number for number in range(6))


class Gate:
    """Lets a counted number of tokens through; opened for all by `open`."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._opened = threading.Event()

    def let(self, tokens: int) -> None:
        """Let this many more tokens through."""
        self._permits.release(tokens)

    def open(self) -> None:
        """Let everything through."""
        self._opened.set()

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait for the next permit, or until nobody wants it."""
        for _ in range(round(PATIENCE_S / _LOOKS_UP_S)):
            if self._opened.is_set() or should_stop() or self._permits.acquire(timeout=_LOOKS_UP_S):
                return
        raise AssertionError("nobody opened the gate")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says to one request, to its end or to its `error`: that of a prompt, or of the
    token with the number `fail_after`."""

    answer: str = "A short answer."
    reasoning: str = ""
    finish: FinishReason = "stop"
    gate: Gate | None = None
    reading_gate: Gate | None = None
    error: Exception | None = None
    fail_after: int | None = None
    notice: str = ""
    wall_ms: tuple[float, ...] = (54.0,)
    pictures: int = 0
    prefill_steps: int = 4
    pause_s: float = 0.0
    token_size: int = 4
    route: str = ""


class ScriptedToken(NamedTuple):
    """One token of a reply."""

    token: int
    text: str
    kind: TokenKind


def echo(turns: Sequence[Turn]) -> Reply:
    """An answer that names its question and how many questions there were."""
    questions = [turn for turn in turns if turn.role == "user"]
    last = questions[-1]
    shown = f" with {len(last.attachments)} pictures" if last.attachments else ""
    return Reply(
        f"Answer {len(questions)}{shown} to: {last.text}", f"They ask {len(last.text)} letters."
    )


class ScriptedBackend:
    """Says what `reply` gives for the turns before the answer."""

    def __init__(
        self,
        reply: Callable[[Sequence[Turn]], Reply] = echo,
        capacity: int = 10_000,
        vocabulary: str = "letters",
    ) -> None:
        self.model = ModelInfo("scripted", "test", "fp32", "nowhere", capacity, is_demo=False)
        self.vocabulary = vocabulary
        self.before_token: Callable[[int], None] = lambda _number: None
        self.fails_at: int | None = None
        self.closed = False
        self.interrupted: list[bool] = []
        self.prompts: list[tuple[Turn, ...]] = []
        self.systems: list[str] = []
        self.ahead: list[tuple[Turn, ...]] = []
        self.kept: list[str] = []
        self._reply = reply
        self._state: list[int] = []
        self._seen: set[str] = set()

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Any file is a picture of `PICTURE_TOKENS` tokens."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PictureError(f"{path} cannot be read") from error
        tokens = min(PICTURE_TOKENS, max_tokens)
        return Attachment(hashlib.sha256(data).hexdigest(), path.name, data, 64, 64, tokens)

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        """Counts the letters of the prompt."""
        ids = _render(turns, settings)
        pictures = sum(picture.tokens for turn in turns for picture in turn.attachments)
        reused = min(_common(ids, self._state), len(ids) - 1)
        return PromptPlan(len(ids), reused, pictures, self.model.capacity)

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        """Plays the script, a token a step."""
        plan = self.plan(turns, settings)
        reply = self._reply(turns[:-1] if turns[-1].role == "assistant" else turns)
        self.prompts.append(tuple(turns))
        self.systems.append(settings.system_prompt)
        if reply.error is not None and reply.fail_after is None:
            raise reply.error
        if plan.slots_free < 1:
            raise CapacityError(
                f"The prompt needs {plan.prompt_tokens} slots, {plan.capacity} are there."
            )
        yield plan
        yield from self._read(turns, reply, plan, should_stop)
        self._state = _render(turns, settings)
        yield from self._answer(
            self._script(turns, settings, reply), reply, plan, settings, should_stop
        )

    def interrupt(self, *, leaving: bool = False) -> None:
        """There is nothing to end."""
        self.interrupted.append(leaving)

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> None:
        """Remember that it was asked to; the state stays."""
        self.ahead.append(tuple(turns))

    def keep(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings,
        chat: str,
        should_stop: Callable[[], bool],
        *,
        shared: bool = False,
    ) -> None:
        """Remember of which chat."""
        self.kept.append(chat)

    def _read(
        self, turns: Sequence[Turn], reply: Reply, plan: PromptPlan, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        shown = {picture.sha256 for turn in turns for picture in turn.attachments}
        fresh = reply.pictures or len(shown - self._seen)
        self._seen |= shown
        for done in range(fresh + 1 if fresh else 0):
            yield VisionProgress(done, fresh)
        for part in range(1, reply.prefill_steps + 1):
            _wait(reply, reply.reading_gate, should_stop)
            read = plan.new_tokens * part // reply.prefill_steps
            yield PrefillProgress(read, plan.new_tokens, 812.0)

    def _answer(
        self,
        script: Sequence[ScriptedToken],
        reply: Reply,
        plan: PromptPlan,
        settings: ChatSettings,
        should_stop: Callable[[], bool],
    ) -> Iterator[Event]:
        reason = reply.finish
        said: list[ScriptedToken] = []
        walls: list[float] = []
        for number, piece in enumerate(script):
            self.before_token(number)
            _wait(reply, reply.gate, should_stop)
            if number == self.fails_at or (reply.error is not None and number == reply.fail_after):
                raise reply.error or RuntimeFailure("The runtime died.")
            free = plan.slots_free - number
            stopped = _stop_reason(number, free, settings, should_stop)
            if stopped is not None:
                reason = stopped
                break
            if reply.notice and number == 1:
                yield Notice(reply.notice)
            self._state.append(piece.token)
            said.append(piece)
            walls.append(reply.wall_ms[number % len(reply.wall_ms)])
            yield Token(*piece, 0.92 * walls[-1], walls[-1], free - 1)
        yield _finished(plan, said, walls, reason, reply.route)

    def _script(
        self, turns: Sequence[Turn], settings: ChatSettings, reply: Reply
    ) -> Sequence[ScriptedToken]:
        script: list[ScriptedToken] = []
        if settings.thinking and reply.reasoning:
            script += [ScriptedToken(ord(char), char, "reasoning") for char in reply.reasoning]
            script.append(ScriptedToken(THOUGHT, "", "reasoning"))
        script += [ScriptedToken(ord(char), char, "answer") for char in reply.answer]
        script.append(ScriptedToken(END, "", "answer"))
        if turns[-1].role == "user":
            return script
        said = _said(turns[-1])
        if [piece.token for piece in script[: len(said)]] == said:
            return script[len(said) :]
        more = [ScriptedToken(ord(char), char, "answer") for char in " And so on."]
        return [*more, ScriptedToken(END, "", "answer")]


def _stop_reason(
    number: int, free: int, settings: ChatSettings, should_stop: Callable[[], bool]
) -> FinishReason | None:
    if should_stop():
        return "cancelled"
    if number == settings.max_new_tokens:
        return "length"
    return "capacity" if free == 0 else None


def _wait(reply: Reply, gate: Gate | None, should_stop: Callable[[], bool]) -> None:
    if gate is not None:
        gate.wait(should_stop)
    if reply.pause_s:
        threading.Event().wait(reply.pause_s)


def _finished(
    plan: PromptPlan,
    said: Sequence[ScriptedToken],
    walls: Sequence[float],
    reason: FinishReason,
    route: str,
) -> Finished:
    texts: dict[TokenKind, str] = {"reasoning": "", "answer": ""}
    for piece in said:
        texts[piece.kind] += piece.text
    predict = tuple(0.92 * wall for wall in walls)
    usage = Usage(
        prompt_tokens=plan.prompt_tokens,
        reused_tokens=plan.reused_tokens,
        image_tokens=plan.image_tokens,
        reasoning_tokens=sum(piece.kind == "reasoning" for piece in said),
        completion_tokens=len(said),
        capacity_total=plan.capacity,
        capacity_used=plan.prompt_tokens + len(said),
        timings=Timings(0.0, 300.0, 412.0, predict, tuple(walls), route),
    )
    ids = tuple(piece.token for piece in said)
    return Finished(reason, texts["answer"], texts["reasoning"], ids, usage)


def _render(turns: Sequence[Turn], settings: ChatSettings) -> list[int]:
    ids: list[int] = []
    if settings.system_prompt:
        ids += [SYSTEM, *map(ord, settings.system_prompt), END]
    for turn in turns[:-1]:
        ids += [*_opened(turn), END]
    last = turns[-1]
    if last.role == "user":
        return [*ids, *_opened(last), END, ASSISTANT]
    return [*ids, ASSISTANT, *_said(last)]


def _opened(turn: Turn) -> list[int]:
    if turn.role == "user":
        pictures = sum(picture.tokens for picture in turn.attachments)
        return [USER, *[PICTURE] * pictures, *map(ord, turn.text)]
    said = _said(turn)
    answer = said[said.index(THOUGHT) + 1 :] if THOUGHT in said else said
    return [ASSISTANT, *(token for token in answer if token != END)]


def _said(turn: Turn) -> list[int]:
    if turn.token_ids:
        return list(turn.token_ids)
    thought = [*map(ord, turn.reasoning), THOUGHT] if turn.reasoning else []
    return [*thought, *map(ord, turn.text)]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
