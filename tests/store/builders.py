"""Small records for the store's tests."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from q35chat.chat.events import Timings, Usage
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, Turn
from q35chat.store import ConversationRecord, TurnRecord

SETTINGS = ChatSettings(
    sampling=SamplingSettings(temperature=0.5, top_k=20, seed=7),
    system_prompt="Be brief. 简短。",
    thinking=True,
    thinking_budget=64,
    stop=("###",),
)


def picture(content: bytes = b"picture bytes", name: str = "cat.png") -> Attachment:
    return Attachment(hashlib.sha256(content).hexdigest(), name, content, 64, 48, 12)


def conversation(
    ident: str = "c1", head: str | None = None, title: str = "A chat"
) -> ConversationRecord:
    return ConversationRecord(ident, title, 100.0, 200.0, head, SETTINGS)


def user(ident: str, parent: str | None, text: str, *pictures: Attachment) -> TurnRecord:
    return TurnRecord(ident, parent, Turn("user", text, pictures), 101.0)


def answer(ident: str, parent: str, text: str) -> TurnRecord:
    turn = Turn("assistant", text, (), "I think", (5, 6, 4_000_000_000), "stop")
    return TurnRecord(ident, parent, turn, 102.5, "model", "vocabulary", SETTINGS, usage())


def usage() -> Usage:
    timings = Timings(1.5, 20.25, 30.125, (1.0, 2.5), (1.25, 3.1), route="prefill")
    return Usage(10, 4, 2, 3, 7, 100, 17, timings)


def later(record: ConversationRecord, head: str | None, updated: float) -> ConversationRecord:
    return replace(record, head=head, updated=updated)
