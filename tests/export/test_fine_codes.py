"""Codes of what rounding left over: rows are looked up with them, the largest products made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from q35chat.bench.traffic import weight_bytes
from q35export.calibration.codes import CodesFile
from q35export.calibration.kept import compare
from q35export.graph import Graph
from q35export.matrix import Float32, Matrix
from q35export.precision import LOGIT_GROUP, REFINED_GROUPS, Quantisation, StoredAs, left_over
from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import EXACT_BITS, USUAL_BITS, ExportRequest
from q35export.targets.cpu import OPSET
from q35export.targets.cpu_weights import BlockMatrix, store
from q35export.verify.candidate import _write_exact
from q35export.verify.stored_weights import quantised_matrices
from q35export.weights import FileSink
from tests.benchmarks.quality.divergence import divergence

ROWS, WIDTH, TOKENS = 40 * LOGIT_GROUP, 100, 3
FMT = BlockFormat(4, 32)


@dataclass(frozen=True)
class Head:
    """A graph that looks rows up and multiplies by them, and what it is made of."""

    path: Path
    exact: Float32
    rough: Float32
    fine: Float32

    def run(self, x: Float32, path: Path | None = None) -> tuple[Float32, Float32]:
        """Rows `[2, WIDTH]`, and the product `[TOKENS, ROWS]`."""
        session = ort.InferenceSession(str(path or self.path), providers=["CPUExecutionProvider"])
        rows, product = session.run(None, {"ids": np.array([3, ROWS - 1]), "x": x[None]})
        return np.asarray(rows), np.asarray(product)[0]


@pytest.fixture
def head(tmp_path: Path) -> Head:
    exact = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    weights = Matrix(ROWS, WIDTH, lambda start, stop: exact[start:stop])
    with FileSink(tmp_path / "model.bin", lambda _: None) as sink:
        graph = Graph("head", OPSET, sink)
        ids = graph.input("ids", ir.DataType.INT64, ("M",))
        x = graph.input("x", ir.DataType.FLOAT, (1, "N", WIDTH))
        matrix = store(graph, "table", weights, Quantisation(4, 32, fine=True), {})
        assert isinstance(matrix, BlockMatrix)
        graph.output(matrix.rows(ids), "rows", ir.DataType.FLOAT, ("M", WIDTH))
        product = matrix.refined(x, matrix.multiply(x))
        graph.output(product, "product", ir.DataType.FLOAT, (1, "N", ROWS))
        ir.save(graph.model({}), tmp_path / "model.onnx")
    rough = dequantize(*quantize(exact, FMT), WIDTH, FMT)
    left = left_over(weights, StoredAs(FMT)).rows(0, ROWS)
    return Head(
        tmp_path / "model.onnx", exact, rough, rough + dequantize(*quantize(left, FMT), WIDTH, FMT)
    )


def _inputs() -> Float32:
    return np.random.default_rng(1).normal(size=(TOKENS, WIDTH)).astype(np.float32)


def _expected(head: Head, x: Float32) -> Float32:
    """Products `[TOKENS, ROWS]`, with fine codes where the largest are."""
    rough = x @ head.rough.T
    maxima = rough.reshape(TOKENS, -1, LOGIT_GROUP).max(-1)
    near = maxima >= np.sort(maxima)[:, -REFINED_GROUPS, None]
    found: Float32 = np.where(np.repeat(near, LOGIT_GROUP, axis=1), x @ head.fine.T, rough)
    return found


def test_rows_and_the_largest_products_have_what_rounding_left_over(head: Head) -> None:
    x = _inputs()
    rows, product = head.run(x)
    np.testing.assert_allclose(rows, head.fine[[3, ROWS - 1]], atol=1e-5)
    assert np.abs(head.fine - head.exact).mean() < 0.15 * np.abs(head.rough - head.exact).mean()
    wanted = _expected(head, x)
    assert np.abs(product - wanted).max() < 0.02 * np.abs(wanted).max()
    assert np.abs(product - x @ head.rough.T).max() > 0.05 * np.abs(wanted).max()


def test_a_comparison_makes_every_product_with_them(head: Head, tmp_path: Path) -> None:
    x = _inputs()
    _write_exact(head.path, tmp_path / "exact.onnx")
    _, product = head.run(x, tmp_path / "exact.onnx")
    np.testing.assert_allclose(product, x @ head.fine.T, atol=1e-3)
    ((name, stored),) = quantised_matrices(head.path)
    assert name == "table"
    np.testing.assert_allclose(
        np.concatenate([rows for _, rows in stored.pieces()])[:, :WIDTH], head.fine, atol=1e-6
    )


def test_a_step_reads_the_rough_codes_and_few_of_the_fine(head: Head) -> None:
    codes = FMT.size(ROWS, WIDTH)
    assert codes < weight_bytes(head.path) < 1.1 * codes


def test_what_is_kept_is_told_of_the_logits_that_the_graph_makes(
    head: Head, tmp_path: Path
) -> None:
    x = _inputs()
    weights = Matrix(ROWS, WIDTH, lambda start, stop: head.exact[start:stop])
    codes = CodesFile(tmp_path)
    codes.round("table", weights, FMT)
    codes.round_left_over("table", weights)
    pieces = np.split(head.rough, [37, 1000, 1001])  # as no group ends
    pairs = [(exact, rough) for exact, rough in codes.refined("table", weights)]
    np.testing.assert_allclose(np.concatenate([fine for _, fine in pairs]), head.fine, atol=1e-6)
    fine = zip(*(np.split(one, [37, 1000, 1001]) for one in (head.exact, head.fine)), strict=True)
    following = np.array([1, 2, 3])
    kept = compare(x, x, following, fine, lambda: iter(pieces))
    wanted = divergence(x @ head.exact.T, _expected(head, x), following)
    assert kept.divergence == pytest.approx(wanted.mean, rel=1e-3)
    alone = compare(x, x, following, zip([head.exact], [head.rough], strict=True))
    assert kept.divergence < 0.5 * alone.divergence


def test_bits_are_spent_where_they_count_unless_told_otherwise() -> None:
    assert ExportRequest().budget == USUAL_BITS
    assert ExportRequest(precision="int4-exact").budget == EXACT_BITS
    assert ExportRequest(bits=4.25).budget == 4.25
    others = (
        ExportRequest(block_size=64),
        ExportRequest(calibrate=False),
        ExportRequest(precision="int8"),
        ExportRequest(dense=False),
    )
    assert {request.budget for request in others} == {None}
