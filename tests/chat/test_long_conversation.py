from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from q35chat.chat.events import Finished
from q35chat.chat.records import ConversationRecord, TurnRecord
from q35chat.chat.workspace import StoredWorkspace
from q35chat.errors import CapacityError
from q35chat.store import Store
from tests.doubles.chat_model import END, GREEDY, ChatModel, user

TURNS = 200
SNAPSHOT_BYTES = 400_000


class CountingStore(Store):
    """Counts the turns that are written."""

    written = 0

    def save(self, record: ConversationRecord, turns: Sequence[TurnRecord]) -> int:
        self.written += len(turns)
        return super().save(record, turns)


def test_a_turn_costs_the_same_however_long_the_conversation_is(
    processor: Path, tmp_path: Path
) -> None:
    model = ChatModel(processor, capacity=6144, snapshot_bytes=SNAPSHOT_BYTES)
    store = CountingStore(tmp_path)
    workspace = StoredWorkspace(store, lambda: (model.engine, GREEDY))
    workspace.load()
    chat = workspace.new()
    costs, buffers, held = [], [], []
    for number in range(TURNS):
        question = f"Question {number:03}"
        model.say([*(step.turn for step in chat.steps), user(question)], *model.ids("Yes."), END)
        runs, written = sum(model.text.runs), store.written
        *_, finished = chat.send(question)
        assert isinstance(finished, Finished)
        assert finished.text == "Yes."
        costs.append((sum(model.text.runs) - runs, store.written - written))
        buffers.append(model.text.allocated)
        held.append(sum(kept.nbytes for kept in model.engine._model.cache.snapshots))
    assert len({read for read, _ in costs[2:]}) == 1
    assert max(written for _, written in costs) <= 3
    assert buffers[-1] == buffers[2]
    assert max(held) <= SNAPSHOT_BYTES
    assert len(chat.steps) == 2 * TURNS
    with Store(tmp_path) as again:
        assert len(again.load(chat.id)[1]) == 2 * TURNS


def test_a_conversation_that_is_full_keeps_all_it_said(processor: Path, tmp_path: Path) -> None:
    model = ChatModel(processor, capacity=160)
    workspace = StoredWorkspace(Store(tmp_path), lambda: (model.engine, GREEDY))
    workspace.load()
    chat = workspace.new()
    reasons: list[str] = []
    while "capacity" not in reasons:
        *_, finished = chat.send("Tell me more and more")
        assert isinstance(finished, Finished)
        reasons.append(finished.reason)
    with pytest.raises(CapacityError):
        next(chat.send("Tell me more and more"))
    assert chat.used_slots == 160
    assert len(chat.steps) == 2 * len(reasons)
    chat.drop_oldest(1)
    forecast = chat.forecast("Tell me more and more")
    *_, finished = chat.send("Tell me more and more")
    assert isinstance(finished, Finished)
    assert forecast.fits
    assert finished.usage.prompt_tokens == forecast.used_slots + forecast.turn_slots
