"""States of an exported graph in one buffer: to the last bit what two buffers give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from q35chat.engine.contract import MAY_ALIAS, read_contract
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from q35chat.runtimes.onnxruntime import OrtSession
from q35export.request import Precision
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint

COUNT = 204


class Careful(OrtSession):
    """The same graph without the promise."""

    def _describe(self) -> None:
        super()._describe()
        self.metadata = {key: value for key, value in self.metadata.items() if key != MAY_ALIAS}


def logits_of(decoder: OneGraphDecoder) -> list[Array]:
    """Chunks of several lengths, steps, a try of which half is dropped, a way back, steps."""
    ids = np.random.default_rng(5).integers(3, 90, COUNT)
    seen: list[Array] = []

    def read(start: int, end: int) -> None:
        places = np.broadcast_to(np.arange(start, end), (3, end - start))
        logits = extend(decoder, ids[start:end], places)
        assert logits is not None
        seen.append(logits.copy())

    for start, end in ((0, 1), (1, 3), (3, 70), (70, 170)):
        read(start, end)
    snapshot = decoder.snapshot()
    seen += [decoder.step(token).copy() for token in ids[170:180]]
    decoder.try_ahead(ids[180:184].tolist())
    seen += [decoder.accept().copy() for _ in range(2)]
    seen += [decoder.step(token).copy() for token in ids[184:188]]
    decoder.restore(snapshot)
    read(188, 200)
    seen += [decoder.step(token).copy() for token in ids[200:204]]
    return seen


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("shape", ["plain", "narrow_key", "mostly_linear", "true_heads"])
def test_states_written_over_change_no_bit(
    shape: str, precision: Precision, tmp_path: Path
) -> None:
    export_checkpoint(make_checkpoint(tmp_path / "checkpoint", shape), tmp_path / "out", precision)
    graph = tmp_path / "out" / "text" / "model.onnx"

    promising, careful = OrtSession(graph, threads=2), Careful(graph, threads=2)
    assert read_contract(promising).may_overwrite
    assert not read_contract(careful).may_overwrite

    over, beside = OneGraphDecoder(promising), OneGraphDecoder(careful)

    for one, two in zip(logits_of(over), logits_of(beside), strict=True):
        np.testing.assert_array_equal(one, two)
