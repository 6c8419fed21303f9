"""Projections in int8: as the exporter writes them, as the executor's kernels compute them, and as
they are computed here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from q35chat.errors import ExportError
from q35export.ascend.ops import ascend_quant, quant_batch_matmul
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.targets.standard import OPSET
from q35export.graph import Graph
from q35export.int8_rows import packed, rounded_inputs, rounded_rows, row_codes, unpacked
from q35export.weights import FileSink
from tests.ascend.test_executor_refusals import removed, replaced
from tests.support.ascend import Array

STEP = 0.03125
Change = Callable[[onnx.NodeProto], None]


def weights_of(n: int, k: int) -> Array:
    return np.random.default_rng(n * k).standard_normal((n, k)).astype(np.float32)


def projection(
    folder: Path, weights: Array, dtype: type = np.float16, scales: Array | None = None
) -> Path:
    """A graph of one projection, its weights in a file beside it."""
    n, k = weights.shape
    codes, worth = row_codes(weights, STEP)
    numbers = packed(worth) if scales is None else scales
    with FileSink(folder / "model.bin", lambda _: None) as sink:
        graph = Graph("one", OPSET, sink)
        kind = ir.DataType.from_numpy(np.dtype(dtype))
        x = graph.input("x", kind, (1, "T", k))
        rounded = ascend_quant(graph, x, kind, STEP, (1, "T", k))
        stored = graph.weight("weights", codes), graph.weight("scales", numbers)
        out = quant_batch_matmul(graph, rounded, *stored, (1, "T", n))
        graph.output(out, "y", ir.DataType.FLOAT16, (1, "T", n))
        ir.save(graph.model({}), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("tokens", "n", "k"), [(1, 5, 64), (7, 40, 160), (3, 33, 2560)])
def test_a_projection_is_the_product_of_what_is_rounded(
    tmp_path: Path, tokens: int, n: int, k: int, dtype: type
) -> None:
    weights = weights_of(n, k)
    graph = GraphExecutor(projection(tmp_path, weights, dtype))
    x: Array = np.random.default_rng(0).standard_normal((1, tokens, k)).astype(dtype)

    found = graph.run({"x": x})["y"]
    inputs = rounded_inputs(x.astype(np.float32), STEP).astype(np.float64)
    wanted = inputs @ rounded_rows(weights, STEP).astype(np.float64).T
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


def test_inputs_that_are_not_rounded_leave_the_error_of_the_weights(tmp_path: Path) -> None:
    weights = weights_of(24, 96)
    graph = GraphExecutor(projection(tmp_path, weights), rounds_inputs=False)
    x = np.random.default_rng(0).standard_normal((1, 4, 96)).astype(np.float16)

    found = graph.run({"x": x})["y"]
    wanted = x.astype(np.float64) @ rounded_rows(weights, STEP).astype(np.float64).T
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_inputs_past_the_largest_code_are_cut_off_and_ties_go_to_even(tmp_path: Path) -> None:
    graph = GraphExecutor(projection(tmp_path, np.eye(3, 3, dtype=np.float32)))
    x = np.array([[[1000, 2.5 * STEP, -3.5 * STEP]]], np.float16)

    found = graph.run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(found[0, 0], [127 * STEP, 2 * STEP, -4 * STEP], rtol=2e-3)


def test_a_weight_is_at_most_half_a_code_off_and_no_code_too_large() -> None:
    weights = weights_of(50, 300)
    weights[7] = 0
    codes, scales = row_codes(weights, STEP)

    assert np.abs(codes.astype(np.int16)).max() <= 127
    off = np.abs(rounded_rows(weights, STEP) - weights)
    assert (off <= 0.501 * (scales / STEP)[:, None]).all()
    assert not codes[7].any()


def test_the_kernel_reads_all_of_a_scale_though_it_leaves_13_bits_out() -> None:
    _, scales = row_codes(weights_of(200, 64), 0.0123)
    np.testing.assert_array_equal(unpacked(packed(scales)), scales)


STATIC = [
    ("AscendQuant", replaced("offset", 1.0), r"offset is 1.0, must be 0.0"),
    ("AscendQuant", replaced("dst_t", 10), "dst_t is 10, must be 3"),
    ("AscendQuant", replaced("scale", 1), "is of type INT, the kernel wants FLOAT"),
    ("QuantBatchMatmul", replaced("transpose_x2", "false"), "transpose_x2 is 'false'"),
    ("QuantBatchMatmul", replaced("transpose_x1", 0), "is of type INT, the kernel wants STRING"),
    ("QuantBatchMatmul", replaced("dtype", 1), "dtype is 1, must be 10"),
    ("QuantBatchMatmul", replaced("input_index", [0, 1, 3]), "input_index is"),
    ("QuantBatchMatmul", removed("optional_input_names"), "optional_input_names"),
]


@pytest.mark.parametrize(("kind", "change", "said"), STATIC)
def test_a_node_that_says_something_else_is_refused(
    tmp_path: Path, kind: str, change: Change, said: str
) -> None:
    model = onnx.load(projection(tmp_path, weights_of(4, 8)), load_external_data=False)
    for node in model.graph.node:
        if any(one.name == "type" and one.s.decode() == kind for one in node.attribute):
            change(node)
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ExportError, match=said):
        GraphExecutor(tmp_path / "other.onnx")


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        (np.full(4, 0x3F800001, np.int64), "no float of 19 bits"),
        (np.full(4, 0x3F800000 | 1 << 46, np.int64), "in the lower half of 64"),
        (np.full(3, 0x3F800000, np.int64), r"scale must be int64 \[4\], found int64 \[3\]"),
        (np.full(4, 0x3F800000, np.int32), "scale must be int64"),
    ],
)
def test_scales_that_the_kernel_would_misread_are_refused(
    tmp_path: Path, scales: Array, said: str
) -> None:
    graph = GraphExecutor(projection(tmp_path, weights_of(4, 8), scales=scales))
    with pytest.raises(ExportError, match=said):
        graph.run({"x": np.zeros((1, 1, 8), np.float16)})


def test_an_input_of_another_type_than_told_is_refused(tmp_path: Path) -> None:
    path = projection(tmp_path, weights_of(4, 8))
    model = onnx.load(path, load_external_data=False)
    replaced("src_t", 1)(model.graph.node[0])
    onnx.save(model, path)
    with pytest.raises(ExportError, match="src_t is 1, x is float16"):
        GraphExecutor(path).run({"x": np.zeros((1, 1, 8), np.float16)})
