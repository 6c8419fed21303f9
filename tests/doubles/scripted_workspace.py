"""The real workspace over a store of its own, answered from a script.

A test that must see a turn half-way gives the reply a `Gate` and lets tokens through one by one.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Kind,
    Notice,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    Usage,
    VisionProgress,
)
from q35chat.chat.history.journal import Journal, untitled
from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import CapacityError, PictureError
from q35chat.store import Store
from q35chat.vision.loading import header, read_file
from tests.doubles.scripted_backend import ScriptedBackend

MODEL = ModelInfo("Qwen3.5-0.8B", "cpu", "int4", "AMD EPYC, 2 threads", 2048, False)
ADDED = 4_000_000_000.0
"""When chats were added, in seconds: those of tests are later than any that is begun in them."""
PATIENCE_S = 60.0
"""Longer than any test: a thread that waits for ever would outlive the tests and hang their end."""
_LOOKS_UP_S = 0.02
_QUESTION = 12
"""Tokens of the template around a question."""


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

    def tokens(self) -> list[tuple[Kind, str]]:
        """Kind and text of all tokens."""
        thought: list[tuple[Kind, str]] = [
            ("reasoning", part) for part in _pieces(self.reasoning, self.token_size)
        ]
        return [*thought, *(("answer", part) for part in _pieces(self.answer, self.token_size))]


class ReplyingBackend(ScriptedBackend):
    """Gives `replies` in order, the last one again and again. All before the question is in the
    model's state; four characters of a question are a token."""

    def __init__(self, replies: list[Reply], model: ModelInfo) -> None:
        super().__init__(vocabulary="scripted")
        self.replies, self.model = replies, model

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Read a picture."""
        if not self.model.pictures:
            raise PictureError(f"{path.name} cannot be shown to the model: it sees no pictures")
        data = read_file(path)
        found = header(data, path.name)
        return attachment(path.name, data, found.width, found.height)

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        """Count what each turn takes."""
        sizes = [_size(turn) for turn in turns]
        before = len(settings.system_prompt) // 4
        known = before + sum(sizes if turns[-1].role == "assistant" else sizes[:-1])
        pictures = sum(picture.tokens for turn in turns for picture in turn.attachments)
        return PromptPlan(before + sum(sizes), known, pictures, self.model.capacity)

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        """Play the next reply."""
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        plan = self.plan(turns, settings)
        self.prompts.append(tuple(turns))
        if isinstance(reply.error, CapacityError) and reply.fail_after is None:
            raise reply.error
        if plan.slots_free < 1:
            raise CapacityError(f"The prompt needs {plan.prompt_tokens} slots.")
        yield plan
        for done in range(reply.pictures + 1 if reply.pictures else 0):
            yield VisionProgress(done, reply.pictures)
        for part in range(1, reply.prefill_steps + 1):
            _wait(reply, reply.reading_gate, should_stop)
            read = plan.new_tokens * part // reply.prefill_steps
            yield PrefillProgress(read, plan.new_tokens, 812.0)
        yield from self._answer(reply, plan, should_stop)

    def _answer(
        self, reply: Reply, plan: PromptPlan, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        said: list[tuple[Kind, str]] = []
        walls: list[float] = []
        finish = reply.finish
        for number, (kind, text) in enumerate(reply.tokens()):
            _wait(reply, reply.gate, should_stop)
            free = plan.slots_free - number - 1
            if should_stop() or free < 0:
                finish = "cancelled" if should_stop() else "capacity"
                break
            if reply.fail_after == number and reply.error is not None:
                raise reply.error
            if reply.notice and number == 1:
                yield Notice(reply.notice)
            said.append((kind, text))
            walls.append(reply.wall_ms[number % len(reply.wall_ms)])
            yield Token(_id(text), text, kind, 0.92 * walls[-1], walls[-1], free)
        answer, reasoning = (
            "".join(text for kind, text in said if kind == wanted)
            for wanted in ("answer", "reasoning")
        )
        yield Finished(
            finish,
            answer,
            reasoning,
            tuple(_id(text) for _, text in said),
            _usage(plan, len(reasoning) // 4, walls, reply.route),
        )


class ScriptedConversation(Conversation):
    """Counts how often it was stopped."""

    cancels = 0

    def cancel(self) -> None:
        """Stop, and count."""
        self.cancels += 1
        super().cancel()

    def fill(self, slots: int, answer: int = 0) -> None:
        """Let the branch take so many slots: its answer with this number is as long as need be."""
        path = self._journal.view.path()
        record = path[2 * answer + 1]
        ids = max(0, slots - sum(_size(it.turn) for it in path if it is not record))
        turn = replace(record.turn, token_ids=(0,) * ids)
        self._journal.replace([replace(record, turn=turn, tokenizer=self.backend.vocabulary)])
        self.count_slots()

    def branch_from(self, question: int, answer: Turn) -> None:
        """Put another answer beside that of a question, and leave it unread."""
        record, end = self._journal.view.path()[2 * question + 1], self._journal.record.head
        self._journal.add(replace(record, id=f"{record.id}b", turn=answer))
        self.choose_branch(0)
        assert self._journal.record.head == end


class ScriptedWorkspace(Workspace):
    """Its model loads as the script says; `conversations` are all that were opened or added."""

    def __init__(
        self,
        replies: Sequence[Reply] = (Reply(),),
        info: ModelInfo = MODEL,
        load_gate: threading.Event | None = None,
        load_error: Exception | None = None,
        message: str = "",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="q35chat-", ignore_cleanup_errors=True)
        super().__init__(
            Store(Path(self._folder.name)), self._script, self._script, reads_ahead=False
        )
        self.backend = ReplyingBackend(list(replies), info)
        self.load_gate, self.load_error = load_gate, load_error
        self.conversations: dict[str, ScriptedConversation] = {}
        self.loads = 0
        self._message = message

    @property
    def replies(self) -> list[Reply]:
        """What the model will say."""
        return self.backend.replies

    @property
    def message(self) -> str:
        """What the store has to say."""
        return self._message

    def _script(self, folder: Path | None = None) -> tuple[ReplyingBackend, ChatSettings]:
        """Wait for the gate, then be loaded or fail; a folder names the model."""
        if self.load_gate is not None:
            assert self.load_gate.wait(PATIENCE_S), "nobody opened the gate"
        self.loads += 1
        if self.load_error is not None:
            raise self.load_error
        if folder is not None:
            info = replace(self.backend.model, name=folder.name, is_demo=False)
            self.backend = ReplyingBackend(self.replies, info)
        return self.backend, ChatSettings()

    def add(
        self, title: str, turns: Sequence[Turn] = (), summary: str = ""
    ) -> ScriptedConversation:
        """A stored conversation."""
        number = len(self.conversations) + 1
        ids = [f"c{number}s{index}" for index in range(len(turns))]
        records = [
            TurnRecord(ident, parent, turn, ADDED, MODEL.name)
            for ident, parent, turn in zip(ids, [None, *ids], turns, strict=False)
        ]
        head, updated = ids[-1] if ids else None, ADDED + number / 1_000
        record = ConversationRecord(
            f"c{number}", title, ADDED, updated, head, ChatSettings(), summary=summary
        )
        self.store.create(record, records)
        return self._opened(Journal(self.store, record, records, stored=True))

    def new(self) -> ScriptedConversation:
        """An empty conversation."""
        self._need_loaded()
        return self._opened(
            Journal(self.store, untitled(f"c{len(self.conversations) + 1}", ChatSettings()))
        )

    def _opened(self, journal: Journal) -> ScriptedConversation:
        conversation = ScriptedConversation(
            self.backend, journal, self._turn_lock, reads_ahead=False
        )
        conversation.count_slots()
        self._open[conversation.id] = self.conversations[conversation.id] = conversation
        return conversation


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


def _wait(reply: Reply, gate: Gate | None, should_stop: Callable[[], bool]) -> None:
    if gate is not None:
        gate.wait(should_stop)
    if reply.pause_s:
        threading.Event().wait(reply.pause_s)


def _size(turn: Turn) -> int:
    """Slots that a turn takes."""
    if turn.role == "user":
        return _QUESTION + len(turn.text) // 4 + sum(it.tokens for it in turn.attachments)
    return len(turn.token_ids) or len([*_pieces(turn.text, 4), *_pieces(turn.reasoning, 4)])


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _id(text: str) -> int:
    return zlib.crc32(text.encode()) >> 1


def _usage(plan: PromptPlan, thought: int, walls: list[float], route: str) -> Usage:
    made = len(walls)
    predict = tuple(0.92 * wall for wall in walls)
    timings = Timings(0.0, 300.0, 412.0, predict, tuple(walls), route)
    used = plan.prompt_tokens + made
    return Usage(
        plan.prompt_tokens, plan.reused_tokens, 0, thought, made, plan.capacity, used, timings
    )
