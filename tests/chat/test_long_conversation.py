from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.workspace import Workspace
from q35chat.errors import CapacityError
from q35chat.store import Store
from tests.chat.scripted_chat import finish, open_workspace
from tests.doubles.chat_model import END, GREEDY, ChatModel

TURNS = 200
SNAPSHOT_BYTES = 100_000
BLOCKS_PER_TURN = 200


class CountingStore(Store):
    """Remembers the most turns that were written at once.

    How often an answer is written while it grows depends on the time it takes, and is not counted.
    """

    most_written = 0

    def save(
        self,
        record: ConversationRecord,
        turns: Sequence[TurnRecord],
        *,
        since: ConversationRecord | None = None,
        wait: bool = True,
    ) -> int:
        self.most_written = max(self.most_written, len(turns))
        return super().save(record, turns, since=since, wait=wait)


def test_a_turn_costs_the_same_however_long_the_conversation_is(
    processor: Path, tmp_path: Path
) -> None:
    model = ChatModel(processor, capacity=6144, snapshot_bytes=SNAPSHOT_BYTES)
    store = CountingStore(tmp_path)
    short = replace(GREEDY, max_new_tokens=4, loop_guard=False)
    model.text.says = dict.fromkeys(range(0, 6144, 7), END)
    workspace = Workspace(store, lambda: (model.engine, short))
    workspace.load()
    chat = workspace.new()
    read, held, blocks = [], [], []
    reasons: set[str] = set()
    for number in range(TURNS):
        tokens_before = sum(model.text.runs)
        finished = finish(chat.send(f"Question {number:03}"))
        workspace.wait_idle()
        reasons.add(finished.reason)
        read.append(sum(model.text.runs) - tokens_before)
        held.append(sum(kept.nbytes for kept in model.engine._model.cache.snapshots))
        if number in {TURNS // 2, TURNS - 1}:
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    assert max(read[TURNS // 2 :]) <= max(read[2 : TURNS // 2])
    assert store.most_written == 1
    assert reasons == {"stop", "length"}
    assert max(held) <= SNAPSHOT_BYTES
    assert (blocks[1] - blocks[0]) / (TURNS // 2) < BLOCKS_PER_TURN
    assert len(chat.steps) == 2 * TURNS
    with Store(tmp_path) as again:
        assert len(again.load(chat.id)[1]) == 2 * TURNS


def test_a_conversation_that_is_full_keeps_all_it_said(processor: Path, tmp_path: Path) -> None:
    model = ChatModel(processor, capacity=160)
    chat = open_workspace(tmp_path, model.engine, GREEDY).new()
    reasons: list[str] = []
    while "capacity" not in reasons:
        reasons.append(finish(chat.send("Tell me more and more")).reason)
    with pytest.raises(CapacityError):
        next(chat.send("Tell me more and more"))
    assert chat.used_slots == 160
    assert len(chat.steps) == 2 * len(reasons)
    chat.drop_oldest(1)
    forecast = chat.forecast("Tell me more and more")
    finished = finish(chat.send("Tell me more and more"))
    assert forecast.fits
    assert finished.usage.prompt_tokens == forecast.used_slots + forecast.turn_slots
