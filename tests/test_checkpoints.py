"""The random checkpoints themselves: the same bytes each time, and every branch covered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from q35export.checkpoint import Checkpoint
from tests.support.checkpoints import SHAPES, make_checkpoint
from tests.support.shapes import FULL_SHAPES
from tests.support.weights import tensors


def digests(folder: Path) -> dict[str, str]:
    files = sorted(folder.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    first = digests(make_checkpoint(tmp_path / "1", "even", seed=5))
    again = digests(make_checkpoint(tmp_path / "2", "even", seed=5))
    other = digests(make_checkpoint(tmp_path / "3", "even", seed=6))
    assert first == again
    assert {name for name in first if first[name] != other[name]} == {"model.safetensors"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_shards_and_dtypes_hold_the_same_weights(tmp_path: Path, dtype: str) -> None:
    whole = Checkpoint.open(make_checkpoint(tmp_path / "whole", "plain"))
    folder = make_checkpoint(tmp_path / "parts", "plain", dtype=dtype, shards=3, with_mtp=True)
    parts = Checkpoint.open(folder)
    assert len(list(folder.glob("model-0000*-of-00003.safetensors"))) == 3
    relative = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    for tensor in tensors(SHAPES["plain"], with_mtp=False):
        wanted = whole.read(tensor.name)
        np.testing.assert_allclose(parts.read(tensor.name), wanted, rtol=relative, atol=1e-7)


def test_mtp_weights_are_there_only_when_asked_for(tmp_path: Path) -> None:
    for with_mtp in (False, True):
        folder = make_checkpoint(tmp_path / str(with_mtp), "plain", with_mtp=with_mtp, shards=2)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert any(name.startswith("mtp.") for name in index["weight_map"]) is with_mtp


def test_unknown_dtypes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="int3 is not one of"):
        make_checkpoint(tmp_path, "plain", dtype="int3")


def test_the_shapes_cover_every_branch_of_the_graphs() -> None:
    shapes = SHAPES.values()
    assert {shape.nv // shape.nk for shape in shapes} >= {1, 2, 4}
    assert {shape.head_dim for shape in shapes} >= {32, 64, 256}
    assert {shape.tied for shape in shapes} == {True, False}
    assert any(shape.heads == shape.kv_heads for shape in shapes)
    assert any(shape.heads > shape.kv_heads > 1 for shape in shapes)
    assert any(shape.dk != shape.dv for shape in shapes)
    assert any(shape.vocab % 32 for shape in shapes)
    assert any(shape.hidden % 128 for shape in shapes)
    assert any(shape.intermediate % 32 for shape in shapes)
    assert {shape.kernel for shape in shapes} >= {2, 3, 4}
    assert {shape.layers[0] for shape in shapes} == {"L", "F"}
    assert {shape.layers[-1] for shape in shapes} == {"L", "F"}
    assert len({shape.layers.count("L") / shape.layers.count("F") for shape in shapes}) >= 4
    assert len({shape.grid_side for shape in shapes}) >= 4


def test_full_shapes_have_the_published_number_of_parameters() -> None:
    sizes = {
        name: sum(int(np.prod(t.shape)) for t in tensors(shape, with_mtp=False))
        for name, shape in FULL_SHAPES.items()
    }
    assert 0.80e9 < sizes["0.8b"] < 0.90e9
    assert 4.2e9 < sizes["4b"] < 4.7e9
