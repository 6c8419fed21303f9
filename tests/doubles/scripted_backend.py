"""A `ChatBackend` that speaks from a script: a letter is a token, and nothing is computed.

Deterministic: the same turns and settings give the same events. It refuses, stops, fails and
fills its slots as the real one does, and counts what a live state would reuse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Kind,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    Usage,
    VisionProgress,
)
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.errors import CapacityError, PictureError, RuntimeFailure

PICTURE_TOKENS = 4
SYSTEM, USER, ASSISTANT, END, THOUGHT, PICTURE = (0x110000 + number for number in range(6))


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model would say to the end."""

    answer: str
    reasoning: str = ""


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
        """Plays the script, a letter a step."""
        plan = self.plan(turns, settings)
        if plan.slots_free < 1:
            raise CapacityError(
                f"The prompt needs {plan.prompt_tokens} slots, {plan.capacity} are there."
            )
        self.prompts.append(tuple(turns))
        self.systems.append(settings.system_prompt)
        yield plan
        yield from self._read(turns, plan)
        self._state = _render(turns, settings)
        said: list[tuple[int, Kind]] = []
        reason: FinishReason = "stop"
        script = self._script(turns, settings)
        for number, (token, kind) in enumerate(script):
            self.before_token(number)
            if self.fails_at == number:
                raise RuntimeFailure("The runtime died.")
            stopped = self._stop_reason(number, settings, should_stop)
            if stopped is not None:
                reason = stopped
                break
            self._state.append(token)
            said.append((token, kind))
            text = "" if token in {END, THOUGHT} else chr(token)
            yield Token(token, text, kind, 1.0, 2.0, self._free())
        yield self._finished(plan, said, reason)

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

    def _read(self, turns: Sequence[Turn], plan: PromptPlan) -> Iterator[Event]:
        shown = {picture.sha256 for turn in turns for picture in turn.attachments}
        fresh = shown - self._seen
        self._seen |= shown
        for done in range(1, len(fresh) + 1):
            yield VisionProgress(done, len(fresh))
        yield PrefillProgress(plan.new_tokens, plan.new_tokens, 1000.0)

    def _script(self, turns: Sequence[Turn], settings: ChatSettings) -> list[tuple[int, Kind]]:
        goes_on = turns[-1].role == "assistant"
        reply = self._reply(turns[:-1] if goes_on else turns)
        script: list[tuple[int, Kind]] = []
        if settings.thinking and reply.reasoning:
            script += [(ord(char), "reasoning") for char in reply.reasoning]
            script.append((THOUGHT, "reasoning"))
        script += [(ord(char), "answer") for char in reply.answer]
        script.append((END, "answer"))
        if not goes_on:
            return script
        said = _said(turns[-1])
        ids = [token for token, _ in script]
        if ids[: len(said)] == said:
            return script[len(said) :]
        return [*((ord(char), "answer") for char in " And so on."), (END, "answer")]

    def _stop_reason(
        self, number: int, settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> FinishReason | None:
        if should_stop():
            return "cancelled"
        if number == settings.max_new_tokens:
            return "length"
        return "capacity" if self._free() == 0 else None

    def _free(self) -> int:
        return self.model.capacity - len(self._state)

    def _finished(
        self, plan: PromptPlan, said: list[tuple[int, Kind]], reason: FinishReason
    ) -> Finished:
        texts: dict[Kind, str] = {"reasoning": "", "answer": ""}
        for token, kind in said:
            texts[kind] += "" if token in {END, THOUGHT} else chr(token)
        usage = Usage(
            prompt_tokens=plan.prompt_tokens,
            reused_tokens=plan.reused_tokens,
            image_tokens=plan.image_tokens,
            reasoning_tokens=sum(kind == "reasoning" for _, kind in said),
            completion_tokens=len(said),
            capacity_total=self.model.capacity,
            capacity_used=len(self._state),
            timings=Timings(0.0, 1.0, 2.0, (1.0,) * len(said), (2.0,) * len(said)),
        )
        ids = tuple(token for token, _ in said)
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
