"""A workspace that answers from a script: no model, no store, the same events every time.

A test that must see a turn half-way gives the reply a `Gate` and lets tokens through one by one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

from PIL import Image

from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Notice,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    Usage,
    VisionProgress,
)
from q35chat.chat.service import Conversation, DropPlan, Forecast, ModelInfo, SessionSummary, Step
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.errors import CapacityError, PictureError, StoreError

MODEL = ModelInfo("Qwen3.5-0.8B", "cpu", "int4", "AMD EPYC, 2 threads", 2048, False)
EPOCH = 1_700_000_000.0
PATIENCE_S = 60.0
"""Longer than any test: a thread that waits for ever would outlive the tests and hang their end."""


class Gate:
    """Lets a counted number of tokens through; opened for all by `open`."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._opened = threading.Event()
        self.cancelled = threading.Event()

    def let(self, tokens: int) -> None:
        """Let this many more tokens through."""
        for _ in range(tokens):
            self._permits.release()

    def open(self) -> None:
        """Let everything through."""
        self._opened.set()
        self._permits.release()

    def cancel(self) -> None:
        """Wake the waiting turn so that it sees the cancellation."""
        self.cancelled.set()
        self._permits.release()

    def wait(self) -> None:
        """Wait for the next permit."""
        if not self._opened.is_set() and not self.cancelled.is_set():
            assert self._permits.acquire(timeout=PATIENCE_S), "nobody opened the gate"


@dataclass(frozen=True)
class Reply:
    """What the model says to one request. Texts are split into tokens of a few characters."""

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


@dataclass
class ScriptedWorkspace:
    """All conversations in memory. `replies` are used in order; the last one repeats."""

    replies: list[Reply] = field(default_factory=lambda: [Reply()])
    info: ModelInfo = MODEL
    load_gate: threading.Event | None = None
    load_error: Exception | None = None
    conversations: dict[str, ScriptedConversation] = field(default_factory=dict)
    loads: int = 0
    exported: list[str] = field(default_factory=list)
    message: str = ""

    def load(self) -> None:
        """Wait for the gate, then be loaded or fail."""
        if self.load_gate is not None:
            assert self.load_gate.wait(PATIENCE_S), "nobody opened the gate"
        self.loads += 1
        if self.load_error is not None:
            raise self.load_error

    def restart(self) -> None:
        """Load once more."""
        self.load()

    def use(self, folder: Path) -> None:
        """Take the folder's name for the model's."""
        self.load()
        self.info = replace(self.info, name=folder.name, is_demo=False)

    def reopen(self, conversation: Conversation) -> Conversation:
        """The same one."""
        return conversation

    @property
    def model(self) -> ModelInfo:
        """The scripted model."""
        return self.info

    def next_reply(self) -> Reply:
        """The reply to the next request."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def new(self) -> Conversation:
        """An empty conversation."""
        return self.add("")

    def add(self, title: str, turns: Sequence[Turn] = ()) -> ScriptedConversation:
        """A stored conversation."""
        number = len(self.conversations) + 1
        conversation = ScriptedConversation(self, f"c{number}", title)
        conversation.history = [
            Step(f"c{number}s{index}", turn) for index, turn in enumerate(turns)
        ]
        conversation.used = sum(len(turn.text) // 4 + 8 for turn in turns)
        self.conversations[conversation.id] = conversation
        return conversation

    def new_from_summary(self, conversation: Conversation) -> tuple[Conversation, Iterator[Event]]:
        """A conversation that says where it came from."""
        old = self.conversations[conversation.id]
        fresh = self.add(f"{old.title} (continued)")
        fresh.summary = "a summary"
        return fresh, old.summarise()

    def open(self, session_id: str) -> Conversation:
        """A stored conversation by id."""
        if session_id not in self.conversations:
            raise StoreError(f"There is no chat {session_id!r}; see the list with Ctrl+L")
        return self.conversations[session_id]

    def sessions(self, query: str = "") -> Sequence[SessionSummary]:
        """Conversations with turns whose title or texts contain the query."""
        found = [
            SessionSummary(item.id, item.title, EPOCH, len(item.history))
            for item in self.conversations.values()
            if (item.history or item.summary)
            and query.lower()
            in " ".join([item.title, *(step.turn.text for step in item.history)]).lower()
        ]
        return found[::-1]

    def rename(self, session_id: str, title: str) -> None:
        """Change a title."""
        self.conversations[session_id].title = title

    def delete(self, session_id: str) -> None:
        """Forget a conversation."""
        del self.conversations[session_id]

    def export_markdown(self, session_id: str, folder: Path) -> Path:
        """Remember that it was asked for."""
        self.exported.append(session_id)
        return folder / f"{session_id}.md"


class ScriptedConversation:
    """One conversation; every request takes the next reply."""

    def __init__(self, workspace: ScriptedWorkspace, session: str, title: str) -> None:
        self.workspace = workspace
        self.id = session
        self.title = title
        self.summary = ""
        self.history: list[Step] = []
        self.branch = 0
        self.branches: list[list[Step]] = [[]]
        self.used = 0
        self.freed_by_pair = 0
        self.cancels = 0
        self._settings = ChatSettings()
        self._cancelled = threading.Event()
        self._gate: Gate | None = None
        self._made = 0

    @property
    def model(self) -> ModelInfo:
        """The workspace's model."""
        return self.workspace.info

    @property
    def steps(self) -> Sequence[Step]:
        """The turns of the present branch."""
        if not self.history:
            return ()
        last = replace(self.history[-1], branch=self.branch, branches=len(self.branches))
        return (*self.history[:-1], last)

    @property
    def used_slots(self) -> int:
        """Slots held."""
        return self.used

    def settings(self) -> ChatSettings:
        """The present settings."""
        return self._settings

    def change_settings(self, settings: ChatSettings) -> None:
        """Take other settings."""
        self._settings = settings

    def attach(self, path: Path) -> Attachment:
        """Read a picture."""
        try:
            data = path.read_bytes()
            with Image.open(BytesIO(data)) as image:
                width, height = image.size
        except OSError:
            raise PictureError(
                f"{path.name} cannot be read as a picture; use PNG or JPEG"
            ) from None
        return attachment(path.name, data, width, height)

    def forecast(
        self, text: str, attachments: Sequence[Attachment], edited: str | None = None
    ) -> Forecast:
        """Four characters a token and twelve of template; an edit begins from nothing."""
        pictures = sum(picture.tokens for picture in attachments)
        need = len(text) // 4 + 12 + pictures
        used = self.used if edited is None else 0
        left = self.model.capacity - used - need
        refusal = f"needs {need:,} slots and one for the answer, {left + need:,} are free"
        reason = "" if left > 0 else refusal
        return Forecast(need, pictures, used, max(0, left), left > 0, reason)

    def send(self, text: str, attachments: Sequence[Attachment] = ()) -> Iterator[Event]:
        """Ask and answer."""
        need = self.forecast(text, attachments).turn_slots
        return self._run(Turn("user", text, tuple(attachments)), need)

    def regenerate(self, step_id: str | None = None) -> Iterator[Event]:
        """Answer again; the earlier answer stays on its branch."""
        answered = self.history[-1].turn.role == "assistant"
        return self._run(None, 8, len(self.history) - 1 if answered else None)

    def edit(
        self, step_id: str, text: str, attachments: Sequence[Attachment] = ()
    ) -> Iterator[Event]:
        """Ask something else beside a former question."""
        index = [step.id for step in self.history].index(step_id)
        need = self.forecast(text, attachments).turn_slots
        return self._run(Turn("user", text, tuple(attachments)), need, index)

    def continue_answer(self) -> Iterator[Event]:
        """Go on with the last answer."""
        last = self.history.pop()
        return self._run(None, 0, before=last.turn.text)

    def cancel(self) -> None:
        """Stop after the present token."""
        self.cancels += 1
        self._cancelled.set()
        if self._gate is not None:
            self._gate.cancel()

    def plan_drop(self, pairs: int) -> DropPlan:
        """Half of the slots come free, whatever is dropped, or `freed_by_pair` for each pair."""
        kept = [step for step in self.history if not step.left_out]
        freed = pairs * self.freed_by_pair if self.freed_by_pair else self.used // 2
        left = self.used - freed
        return DropPlan(tuple(kept[: 2 * pairs]), freed, left, self.model.capacity - left)

    def drop_oldest(self, pairs: int) -> None:
        """Leave the oldest questions and answers out."""
        plan = self.plan_drop(pairs)
        freed = plan.freed_slots
        out = {step.id for step in plan.steps}
        self.history = [
            replace(step, left_out=step.left_out or step.id in out) for step in self.history
        ]
        self.used -= freed

    def summarise(self) -> Iterator[Event]:
        """The model writes something that is not part of the conversation."""
        history, used = list(self.history), self.used
        yield from self._run(None, 20)
        self.history, self.used = history, used

    def choose_branch(self, branch: int) -> None:
        """Read another branch."""
        self.branches[self.branch] = self.history
        self.branch, self.history = branch, self.branches[branch]

    def _run(
        self, question: Turn | None, need: int, after: int | None = None, before: str = ""
    ) -> Iterator[Event]:
        """A turn that can be stopped from now on, whenever it begins to be computed; with `after`
        it begins a branch behind so many turns."""
        reply = self.workspace.next_reply()
        self._cancelled.clear()
        self._gate = reply.gate
        return self._running(reply, question, need, after, before)

    def _running(
        self, reply: Reply, question: Turn | None, need: int, after: int | None, before: str
    ) -> Iterator[Event]:
        if isinstance(reply.error, CapacityError) and reply.fail_after is None:
            raise reply.error
        if after is not None:
            self.branches = [*self.branches, self.history[:after]]
            self.choose_branch(len(self.branches) - 1)
        if question is not None:
            self.history.append(Step(self._name(), question))
            self.title = self.title or question.text[:40]
        reused = self.used
        yield PromptPlan(reused + need, reused, 0, self.model.capacity)
        yield from self._reading(reply, need)
        self.used += need
        yield from self._answering(reply, need, reused, before)

    def _reading(self, reply: Reply, need: int) -> Iterator[Event]:
        for done in range(reply.pictures + 1 if reply.pictures else 0):
            yield VisionProgress(done, reply.pictures)
        for part in range(1, reply.prefill_steps + 1):
            if reply.reading_gate is not None:
                reply.reading_gate.wait()
            self._pause(reply)
            yield PrefillProgress(need * part // reply.prefill_steps, need, 812.0)

    def _answering(self, reply: Reply, need: int, reused: int, before: str) -> Iterator[Event]:
        reasoning, answer, finish = "", "", reply.finish
        walls: list[float] = []
        for number, token in enumerate(self._tokens(reply)):
            if reply.gate is not None:
                reply.gate.wait()
            self._pause(reply)
            if self._cancelled.is_set():
                finish = "cancelled"
                break
            if reply.fail_after == number and reply.error is not None:
                self._keep(Turn("assistant", before + answer, finish="cancelled"))
                raise reply.error
            if reply.notice and number == 1:
                yield Notice(reply.notice)
            walls.append(token.wall_ms)
            reasoning += token.text if token.kind == "reasoning" else ""
            answer += token.text if token.kind == "answer" else ""
            yield token
        usage = self._usage(need, reused, reasoning, walls, reply.route)
        self._keep(Turn("assistant", before + answer, (), reasoning, (), finish), usage)
        yield Finished(finish, answer, reasoning, (), usage)

    def _usage(
        self, need: int, reused: int, reasoning: str, walls: list[float], route: str
    ) -> Usage:
        thought = len(reasoning) // 4
        predict = tuple(0.92 * wall for wall in walls)
        timings = Timings(0.0, 300.0, 412.0, predict, tuple(walls), route)
        return Usage(
            reused + need, reused, 0, thought, len(walls), self.model.capacity, self.used, timings
        )

    def _tokens(self, reply: Reply) -> Iterator[Token]:
        number = 0
        for kind, text in (("reasoning", reply.reasoning), ("answer", reply.answer)):
            for start in range(0, len(text), reply.token_size):
                wall = reply.wall_ms[number % len(reply.wall_ms)]
                self.used = min(self.model.capacity, self.used + 1)
                free = self.model.capacity - self.used
                part = text[start : start + reply.token_size]
                yield Token(number, part, kind, 0.92 * wall, wall, free)  # type: ignore[arg-type]
                number += 1

    def _pause(self, reply: Reply) -> None:
        if reply.pause_s:
            self._cancelled.wait(reply.pause_s)

    def _keep(self, turn: Turn, usage: Usage | None = None) -> None:
        self.history.append(Step(self._name(), turn, usage=usage, model=self.model.name))

    def _name(self) -> str:
        self._made += 1
        return f"{self.id}n{self._made}"


def attachment(name: str, data: bytes, width: int, height: int) -> Attachment:
    """An attachment with an honest hash and a plausible number of tokens."""
    tokens = max(4, round(width / 32) * round(height / 32))
    return Attachment(hashlib.sha256(data).hexdigest(), name, data, width, height, tokens)


def dialogue(pairs: int, answer: str = "Answer number {}.") -> list[Turn]:
    """Many questions and answers."""
    turns: list[Turn] = []
    for number in range(1, pairs + 1):
        turns.append(Turn("user", f"Question number {number}?"))
        turns.append(Turn("assistant", answer.format(number), finish="stop"))
    return turns
