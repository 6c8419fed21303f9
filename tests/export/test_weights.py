"""Weights: a matrix as a source of rows, the file they are stored in, and what is read back."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.config import ModelConfig, load_config
from q35export.matrix import Matrix, matrix, stack, take_blocks
from q35export.verify import stored_weights as module
from q35export.verify.stored_weights import Origin, origins, stored_weights
from q35export.weights import ALIGNMENT, FileSink, WeightSink
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint

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


class _Tensors:
    def __init__(self, **tensors: np.ndarray) -> None:
        self.tensors = tensors

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        assert self.tensors[name].shape == shape

    def matrix(self, name: str) -> Matrix:
        return matrix(self, name, self.tensors[name].shape)

    def read(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.tensors[name][start:stop]


def _numbered(n: int, k: int, base: int = 0) -> np.ndarray:
    return (np.arange(n * k, dtype=np.float32) + base).reshape(n, k)


def _all_slices_agree(whole: Matrix, expected: np.ndarray) -> None:
    assert (whole.n, whole.k) == expected.shape
    for start in range(whole.n):
        for stop in range(start + 1, whole.n + 1):
            np.testing.assert_array_equal(whole.rows(start, stop), expected[start:stop])


def test_trailing_axes_are_flattened() -> None:
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    _all_slices_agree(_Tensors(w=weights).matrix("w"), weights.reshape(2, 12))


def test_stacked_rows_follow_each_other_at_every_cut() -> None:
    parts = [_numbered(3, 4), _numbered(1, 4, 100), _numbered(5, 4, 200)]
    source = _Tensors(a=parts[0], b=parts[1], c=parts[2])
    joined = stack(*(source.matrix(name) for name in "abc"))
    _all_slices_agree(joined, np.concatenate(parts))


def test_stacking_different_widths_is_refused() -> None:
    source = _Tensors(a=_numbered(2, 4), b=_numbered(2, 5))
    with pytest.raises(ValueError, match=r"\[4, 5\]"):
        stack(source.matrix("a"), source.matrix("b"))


@pytest.mark.parametrize("offset", [0, 1])
def test_interleaved_blocks_come_apart_in_order(offset: int) -> None:
    weights = _numbered(12, 2)
    taken = take_blocks(_Tensors(w=weights).matrix("w"), block=3, every=2, offset=offset)
    expected = weights.reshape(2, 2, 3, 2)[:, offset].reshape(6, 2)
    _all_slices_agree(taken, expected)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, ModelConfig]:
    folder = tmp_path_factory.mktemp("made")
    checkpoint = make_checkpoint(folder / "checkpoint", "full_first")
    return export_checkpoint(checkpoint, folder / "out", "int4"), load_config(checkpoint)


def test_a_tensor_is_let_go_before_the_next_is_read(made: tuple[Bundle, ModelConfig]) -> None:
    seen: dict[str, weakref.ref[Any]] = {}
    for name, tensor in stored_weights(*made):
        seen[name] = weakref.ref(tensor.values)
        assert [other for other, values in seen.items() if values() is not None] == [name]
    assert len(seen) > 20


def test_interleaved_rows_come_whole_from_one_matrix(made: tuple[Bundle, ModelConfig]) -> None:
    names = [name for name, _ in stored_weights(*made)]
    assert len(names) == len(set(names))
    assert "model.language_model.layers.0.self_attn.q_proj.weight" in names
    assert "model.visual.merger.linear_fc1.weight" in names


def test_a_tensor_that_comes_from_two_matrices_is_refused(
    made: tuple[Bundle, ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(config: ModelConfig, graph: str) -> dict[str, Origin]:
        found = origins(config, graph)
        if graph == "vision":
            return found
        joined = found["layer_0/qkvg"]
        row = np.minimum(joined.row, 300)
        return found | {"layer_0/qkvg": Origin(joined.tensors, joined.tensor, row)}

    monkeypatch.setattr(module, "origins", halved)
    with pytest.raises(ValueError, match=r"layer_0/qkvg holds 301 of 1024 rows of .*q_proj"):
        list(stored_weights(*made))


def test_pieces_of_any_size_give_the_same_weights(
    made: tuple[Bundle, ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {name: tensor.values for name, tensor in stored_weights(*made)}
    monkeypatch.setattr(module, "PIECE_VALUES", 1000)
    for name, tensor in stored_weights(*made):
        np.testing.assert_array_equal(tensor.values, whole[name])


def test_a_bundle_in_floats_has_none(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain")
    bundle = export_checkpoint(checkpoint, tmp_path / "out", "fp32")
    assert list(stored_weights(bundle, load_config(checkpoint))) == []
