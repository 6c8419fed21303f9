from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35export.weights import ALIGNMENT, FileSink, WeightSink

PIECES = [np.arange(5, dtype=np.float32), np.arange(3, dtype=np.float32)]


def _pieces() -> Iterator[np.ndarray]:
    yield from PIECES


def test_tensors_lie_at_page_offsets_and_hash_as_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    seen: list[int] = []
    with FileSink(path, seen.append) as sink:
        first = sink.store(32, _pieces)
        second = sink.store(32, _pieces)
    data = path.read_bytes()
    assert (first.offset, second.offset) == (0, ALIGNMENT)
    assert data[:32] == data[ALIGNMENT : ALIGNMENT + 32] == np.concatenate(PIECES).tobytes()
    assert sink.size == len(data)
    assert sink.sha256 == hashlib.sha256(data).hexdigest()
    assert seen == [20, 12, 20, 12]


def test_a_tensor_of_the_wrong_length_is_an_error(tmp_path: Path) -> None:
    with (
        FileSink(tmp_path / "model.bin", lambda _: None) as sink,
        pytest.raises(ValueError, match="32"),
    ):
        sink.store(31, _pieces)


def test_counting_gives_the_size_without_asking_for_contents(tmp_path: Path) -> None:
    def never() -> Iterator[np.ndarray]:
        raise AssertionError("contents were read")

    counting = WeightSink()
    with FileSink(tmp_path / "model.bin", lambda _: None) as sink:
        for _ in range(3):
            assert counting.store(32, never) == sink.store(32, _pieces)
    assert counting.size == sink.size


def test_two_tensors_may_share_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    with FileSink(path, lambda _: None) as sink:
        stored = sink.store(32, _pieces)
        flat = sink.tensor("flat", stored, (8,), ir.DataType.FLOAT)
        square = sink.tensor("square", stored, (2, 4), ir.DataType.FLOAT)
    assert (flat.offset, flat.length) == (square.offset, square.length) == (0, 32)
    assert flat.location == "model.bin"
