"""The parts of `verify` that need no torch: measures, limits, the table, refusals."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.errors import Q35Error
from q35chat.runtimes.onnxruntime import OrtSession
from q35export.config import load_config
from q35export.verify import Report, metrics
from q35export.verify.candidate import Candidate, exact_copy
from q35export.verify.metrics import GRAPH, Difference, Limits, difference
from q35export.verify.reference import EncodedPrompt, require_torch
from q35export.verify.report import TensorRow, TokenRow
from q35export.verify.samples import Drawing
from q35export.verify.stored_weights import origins, quantised_matrices
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint

SOUND = Difference(cosine=1.0, nrmse=1e-6, max_abs=1e-5)


def report(*, tensor: Difference = SOUND, equal: int = 8) -> Report:
    return Report(
        "out",
        "fp32",
        (TensorRow("graph", "text", "recurrent_3", tensor, GRAPH),),
        (TokenRow("graph", "text", equal, 8, 8),),
    )


def test_equal_tensors_differ_by_nothing() -> None:
    values = np.arange(6.0).reshape(2, 3)
    assert difference(values, values) == Difference(1.0, 0.0, 0.0)
    assert difference(values * 0, values * 0) == Difference(1.0, 0.0, 0.0)


def test_difference_measures_direction_size_and_the_largest_error() -> None:
    found = difference(np.array([3.0, 5.0]), np.array([3.0, 4.0]))
    assert found.cosine == pytest.approx(29 / (34**0.5 * 5))
    assert found.nrmse == pytest.approx(0.2)
    assert found.max_abs == 1.0


def test_pieces_of_a_matrix_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    wanted = generator.standard_normal((7, 11), np.float32)
    found = wanted + generator.standard_normal((7, 11), np.float32) / 10
    whole = difference(found, wanted)
    monkeypatch.setattr(metrics, "PIECE_VALUES", 9)
    pieces = difference(found, wanted)
    for name in ("cosine", "nrmse", "max_abs"):
        assert getattr(pieces, name) == pytest.approx(getattr(whole, name), rel=1e-12)


@pytest.mark.parametrize("place", [0, 30, 76])
def test_nan_in_any_piece_breaks_every_limit(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PIECE_VALUES", 9)
    found = np.ones(77, np.float32)
    found[place] = np.nan
    result = difference(found, np.ones(77, np.float32))
    assert np.isnan([result.cosine, result.nrmse, result.max_abs]).all()
    assert Limits(cosine=-1.0, nrmse=1e9).broken_by(result)


def test_the_largest_matrix_is_compared_without_a_copy_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "PIECE_VALUES", 1 << 10)
    values = np.ones((1 << 9, 1 << 9), np.float32)
    tracemalloc.start()
    try:
        difference(values, values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes / 8


def test_tensors_of_different_shapes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        difference(np.zeros((2, 3)), np.zeros((3, 2)))


@pytest.mark.parametrize(
    "found",
    [
        Difference(cosine=0.9, nrmse=0.01, max_abs=0.1),
        Difference(cosine=1.0, nrmse=0.03, max_abs=0.1),
        Difference(cosine=1.0, nrmse=0.01, max_abs=1.1),
        Difference(cosine=float("nan"), nrmse=float("nan"), max_abs=float("nan")),
    ],
)
def test_each_measure_can_break_the_limits(found: Difference) -> None:
    assert GRAPH.broken_by(found)
    assert not GRAPH.broken_by(SOUND)


def test_a_limit_that_is_none_is_no_limit() -> None:
    assert not Limits(cosine=0.9, nrmse=0.1).broken_by(Difference(1.0, 0.0, 1e9))


def test_a_report_passes_only_while_tensors_and_tokens_hold() -> None:
    assert report().passed
    assert not report(tensor=Difference(0.5, 1.0, 9.0)).passed
    assert not report(equal=7).passed


def test_the_name_of_a_bundle_is_no_markup() -> None:
    assert "[bold]out[/x] (fp32)" in replace(report(), bundle="[bold]out[/x]").table()


def test_the_table_names_what_is_broken() -> None:
    assert "BROKEN" not in report().table()
    table = report(equal=7).table()
    assert "recurrent 3" in table
    assert "7 of 8" in table
    assert "BROKEN" in table


def test_the_table_shows_the_worst_layer_of_each_kind() -> None:
    rows = [
        TensorRow("graph", "text", f"key_{layer}", Difference(1 - layer / 1e5, 0.0, 0.0), GRAPH)
        for layer in (3, 7, 5)
    ]
    assert [row.tensor for row in Report("out", "fp32", tuple(rows), ()).worst()] == ["key_7"]


def test_drawings_are_the_same_pixels_for_the_same_seed() -> None:
    first, again, other = (Drawing(50, 30, seed).image() for seed in (1, 1, 2))
    assert first.size == (50, 30)
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_rows_of_fused_matrices_are_traced_to_the_checkpoint(tmp_path: Path) -> None:
    config = load_config(make_checkpoint(tmp_path, "full_first"))
    origin = origins(config, "text")["layer_0/qkvg"]
    dim, prefix = config.text.head_dim, "model.language_model.layers.0.self_attn"
    assert origin.tensors[origin.tensor[0]] == f"{prefix}.q_proj.weight"
    assert origin.row[: dim + 1].tolist() == [*range(dim), 2 * dim]
    assert origin.tensors[origin.tensor[2 * dim]] == f"{prefix}.k_proj.weight"
    assert origin.row[-1] == 4 * dim - 1


def test_the_exact_copy_differs_only_in_its_arithmetic_and_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "narrow_key")
    bundle = export_checkpoint(checkpoint, tmp_path / "out", "int4")
    before = sorted(bundle.path.rglob("*"))
    with exact_copy(bundle) as copy:
        assert accuracy_levels(bundle) == {4}
        assert accuracy_levels(copy) == {1}
        for (name, mine), (other, theirs) in zip(
            quantised_matrices(bundle.graph_path("text")),
            quantised_matrices(copy.graph_path("text")),
            strict=True,
        ):
            assert name == other
            np.testing.assert_array_equal(mine.codes.numpy(), theirs.codes.numpy())
            np.testing.assert_array_equal(mine.scales.numpy(), theirs.scales.numpy())
    assert sorted(bundle.path.rglob("*")) == before


def test_states_that_the_graph_writes_over_are_read_whole_and_caches_up_to_the_prompt(
    tmp_path: Path,
) -> None:
    bundle = export_checkpoint(make_checkpoint(tmp_path / "checkpoint"), tmp_path / "out")
    session = OrtSession(bundle.graph_path("text"), threads=1)
    declared = {
        spec.name.removeprefix("past_"): spec.shape
        for spec in session.inputs
        if spec.name.startswith("past_")
    }
    candidate = Candidate(bundle, threads=1)
    try:
        states = candidate.prefill(EncodedPrompt(np.array([3, 5, 7]), ())).states
    finally:
        candidate.close()

    assert states.keys() == declared.keys()
    for name, state in states.items():
        whole = declared[name]
        cache = name.startswith(("key", "value"))
        assert state.shape == ((*whole[:-2], 3, whole[-1]) if cache else whole)


def accuracy_levels(bundle: Bundle) -> set[int]:
    nodes = [node for name in ("text", "vision") for node in ir.load(bundle.graph_path(name)).graph]
    return {
        node.attributes["accuracy_level"].as_int()
        for node in nodes
        if node.op_type == "MatMulNBits"
    }


def test_without_torch_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Q35Error, match=r"-m pip install torch$"):
        require_torch()
