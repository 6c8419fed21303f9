"""The real workspace over a store of its own, answered from a script."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import PromptPlan, TokenKind
from q35chat.chat.history.journal import Journal, untitled
from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import PictureError
from q35chat.store import Store
from q35chat.vision.loading import header, read_file
from tests.doubles.scripted_backend import PATIENCE_S, Reply, ScriptedBackend, ScriptedToken

MODEL = ModelInfo("Qwen3.5-0.8B", "cpu", "int4", "AMD EPYC, 2 threads", 2048, False)
ADDED = 4_000_000_000.0
"""When chats were added, in seconds: those of tests are later than any that is begun in them."""
_QUESTION = 12
"""Tokens of the template around a question."""


class CountingBackend(ScriptedBackend):
    """Gives `replies` in order, the last one again and again. All before the question is in the
    model's state; four characters of a question are a token."""

    def __init__(self, replies: list[Reply], model: ModelInfo) -> None:
        super().__init__(self._next, vocabulary="scripted")
        self.replies, self.model = replies, model

    def _next(self, _turns: Sequence[Turn]) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

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

    def _script(
        self, turns: Sequence[Turn], settings: ChatSettings, reply: Reply
    ) -> Sequence[ScriptedToken]:
        parts: tuple[tuple[TokenKind, str], ...] = (
            ("reasoning", reply.reasoning),
            ("answer", reply.answer),
        )
        return [
            ScriptedToken(zlib.crc32(text.encode()) >> 1, text, kind)
            for kind, whole in parts
            for text in _pieces(whole, reply.token_size)
        ]


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
        self.backend = CountingBackend(list(replies), info)
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

    def _script(self, folder: Path | None = None) -> tuple[CountingBackend, ChatSettings]:
        """Wait for the gate, then be loaded or fail; a folder names the model."""
        if self.load_gate is not None:
            assert self.load_gate.wait(PATIENCE_S), "nobody opened the gate"
        self.loads += 1
        if self.load_error is not None:
            raise self.load_error
        if folder is not None:
            info = replace(self.backend.model, name=folder.name, is_demo=False)
            self.backend = CountingBackend(self.replies, info)
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


def _size(turn: Turn) -> int:
    """Slots that a turn takes."""
    if turn.role == "user":
        return _QUESTION + len(turn.text) // 4 + sum(it.tokens for it in turn.attachments)
    return len(turn.token_ids) or len([*_pieces(turn.text, 4), *_pieces(turn.reasoning, 4)])


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
