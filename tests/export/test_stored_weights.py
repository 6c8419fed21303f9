"""The weights of a bundle read back as the checkpoint's tensors."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.config import ModelConfig, load_config
from q35export.verify import stored_weights as module
from q35export.verify.stored_weights import Origin, origins, stored_weights
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint


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
