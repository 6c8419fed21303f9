"""Steps that read the filled rows of the caches head by head, beside steps that read the caches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array, Buffer
from q35chat.engine.slots import NoSlotError
from q35chat.runtimes.onnxruntime import OrtRun, OrtSession
from q35export.request import Precision
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint

SLOTS, PART, ROWS = 384, 128, 16
PROMPT = 225


class Counting(OrtSession):
    """Counts what is bound."""

    bound = 0

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> OrtRun:
        self.bound += 1
        return super().bind(inputs, outputs)


def opened(folder: Path, shape: str, precision: Precision = "fp32") -> Counting:
    checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=5)
    bundle = export_checkpoint(checkpoint, folder / "out", precision, max_seq_len=SLOTS)
    return Counting(bundle.graph_path("text"), threads=2)


@pytest.fixture(autouse=True)
def worth_it_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("q35chat.engine.contract._WORTH_SLOTS", 240)


def read(decoder: OneGraphDecoder, count: int) -> None:
    ids = np.random.default_rng(5).integers(3, 90, count)
    extend(decoder, ids, np.broadcast_to(np.arange(count), (3, count)))


def filled(decoder: OneGraphDecoder) -> list[Array]:
    """The logits of greedy steps to the last slot, half of them once more after going back."""
    read(decoder, PROMPT)
    rows = [decoder.logits().copy()]
    while decoder.used < SLOTS:
        if decoder.used == PROMPT + 40:
            snapshot = decoder.snapshot()
        rows.append(decoder.step(int(rows[-1].argmax())).copy())
    decoder.restore(snapshot)
    return rows + [decoder.step(int(row.argmax())).copy() for row in rows[40:60]]


@pytest.mark.parametrize("shape", ["plain", "narrow_key", "true_heads", "mostly_full"])
def test_steps_write_the_same_tokens_whichever_way_they_read(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(tmp_path, shape)
    by_rows = filled(OneGraphDecoder(session))
    monkeypatch.setattr("q35chat.engine.contract._WORTH_SLOTS", SLOTS)
    whole = filled(OneGraphDecoder(session))

    np.testing.assert_allclose(by_rows, whole, atol=1e-4)
    assert any((one != other).any() for one, other in zip(by_rows, whole, strict=True))
    assert [row.argmax() for row in by_rows] == [row.argmax() for row in whole]
    np.testing.assert_array_equal(by_rows[41:61], by_rows[-20:])


def test_a_step_is_bound_anew_only_when_its_parts_are_full(tmp_path: Path) -> None:
    session = opened(tmp_path, "plain")
    decoder = OneGraphDecoder(session)
    read(decoder, 2 * PART - 1)
    decoder.step(1)
    before = session.bound

    for _ in range(2 * ROWS):
        decoder.step(1)
    assert session.bound == before + 1

    for _ in range(SLOTS - decoder.used):
        decoder.step(1)
    assert session.bound == before + 3
    with pytest.raises(NoSlotError):
        decoder.step(1)


def test_few_tokens_and_several_at_once_read_the_caches(tmp_path: Path) -> None:
    session = opened(tmp_path, "plain")
    decoder = OneGraphDecoder(session)
    contract = decoder._contract

    assert contract.filled_part == PART
    assert [contract.filled_parts(used) for used in (0, 239, 240, 255, 256, 383)] == [
        (0, 0), (0, 0), (2, 128), (2, 128), (3, 96), (3, 128),
    ]  # fmt: skip
    assert {one.past for one in contract.filled} == {"past_key_3", "past_value_3"}


def test_what_reads_the_rows_waits_until_the_tokens_own_are_written(tmp_path: Path) -> None:
    session = opened(tmp_path, "plain")
    last = []
    for stale in (0.0, 9.0):
        decoder = OneGraphDecoder(session)
        read(decoder, 250)
        for pair in decoder._contract.pairs:
            if pair.cache:
                decoder._states.inputs(0)[pair.past].host()[:, :, 250] = stale
        last.append(decoder.step(1).copy())

    np.testing.assert_array_equal(last[0], last[1])
