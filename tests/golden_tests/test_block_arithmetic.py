"""What the runtime does with block-quantised weights is the plain model of it, and nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from q35export.calibration.mixture import Mixture, Routed
from q35export.config import Experts
from q35export.matrix import Matrix
from q35export.precision import StoredAs
from q35export.quantize import BlockFormat, quantize
from q35export.verify.stored_weights import dequantised
from tests.support.block_arithmetic import Floats, error_bound, mixture, rounded_to_int8
from tests.support.experts import run_experts

FORMATS = [BlockFormat(bits, block) for bits in (4, 8) for block in (32, 64, 128)]


def random_case(rows: int, columns: int, count: int) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(columns)
    weights = generator.standard_normal((count, columns), np.float32) / np.float32(columns**0.5)
    return generator.standard_normal((rows, columns), np.float32), weights


def run(x: Floats, weights: Floats, fmt: BlockFormat, level: int) -> tuple[Floats, Floats]:
    """The runtime's product, and the weights that it multiplied by."""
    codes, scales = quantize(weights, fmt)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "codes", "scales"],
        ["y"],
        domain="com.microsoft",
        K=x.shape[1],
        N=len(weights),
        bits=fmt.bits,
        block_size=fmt.block,
        accuracy_level=level,
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (len(x), len(weights)))],
        [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString())
    product = np.asarray(session.run(None, {"x": x})[0], np.float32)
    return product, dequantised(codes, scales, bits=fmt.bits)[:, : x.shape[1]]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_fp32_level_multiplies_by_the_stored_weights(fmt: BlockFormat, rows: int) -> None:
    x, weights = random_case(rows, 200, 70)
    product, stored = run(x, weights, fmt, level=1)
    np.testing.assert_allclose(product, x @ stored.T, atol=1e-5)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_int8_level_rounds_the_input_by_blocks_and_errs_within_the_bound(
    fmt: BlockFormat, rows: int
) -> None:
    x, weights = random_case(rows, 200, 70)
    product, stored = run(x, weights, fmt, level=4)
    # a value that lies on the edge of two codes may fall to either side: one step of one input
    step = np.abs(x).max() / 127 * np.abs(stored).max()
    np.testing.assert_allclose(product, rounded_to_int8(x, fmt.block) @ stored.T, atol=step)
    off_edge = np.abs(product - rounded_to_int8(x, fmt.block) @ stored.T) > 1e-5
    assert off_edge.mean() < 0.01
    assert (np.abs(product - x @ stored.T) <= error_bound(x, stored, fmt.block) + 1e-5).all()


def test_a_block_of_zeros_stays_zero() -> None:
    x, weights = random_case(3, 64, 8)
    x[:, :32] = 0
    product, stored = run(x, weights, BlockFormat(4, 32), level=4)
    np.testing.assert_allclose(product, rounded_to_int8(x, 32) @ stored.T, atol=1e-5)


EXPERTS, WIDTH, INNER = 6, 256, 128


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_experts_in_floats_are_the_plain_model(rows: int, normalised: bool) -> None:
    x, scores, gate_up, down = random_experts(rows)
    found = run_experts(x, scores, gate_up, down, chosen=2, normalised=normalised)
    wanted = mixture(x, scores, gate_up, down, 2, normalised=normalised)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_quantised_experts_round_what_goes_in_as_the_plain_model_does(
    fmt: BlockFormat, rows: int
) -> None:
    x, scores, gate_up, down = random_experts(rows)
    found = run_experts(x, scores, gate_up, down, chosen=3, fmt=fmt)
    stored = _stored(gate_up, fmt), _stored(down, fmt)
    wanted = mixture(x, scores, stored[0], stored[1], 3, block=fmt.block)
    # a value that lies on the edge of two codes may fall to either side: one step of one input
    np.testing.assert_allclose(found, wanted, atol=0.02)
    off_edge = np.abs(found - wanted) > 1e-5
    assert off_edge.any(axis=-1).mean() < 0.05


@pytest.mark.parametrize("fmt", [None, *FORMATS[::2]], ids=str)
def test_a_calibration_makes_of_experts_what_the_kernel_makes_of_them(
    fmt: BlockFormat | None,
) -> None:
    x, scores, gate_up, down = random_experts(60)
    found = run_experts(x, scores, gate_up, down, chosen=3, fmt=fmt)
    flat = [one.reshape(-1, one.shape[-1]) for one in (gate_up, down)]
    stored = {}
    if fmt is not None:
        pairs = zip("ab", flat, strict=True)
        stored = {name: StoredAs(fmt, partial(quantize, one, fmt)) for name, one in pairs}
    first, second = (Matrix(*one.shape, partial(_rows, one)) for one in flat)
    experts = Experts(EXPERTS, 3, INNER, 0, normalised=True)
    known = Mixture(experts, ("a", first), ("b", second), stored)
    wanted = known.run(Routed(x, scores))
    np.testing.assert_allclose(found, wanted, atol=0.02 if fmt else 1e-5)
    assert (np.abs(found - wanted) > 1e-5).any(axis=-1).mean() < 0.1


def _rows(weights: Floats, start: int, stop: int) -> Floats:
    return weights[start:stop]


def random_experts(rows: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Rows, scores, gate and up in turn, and down."""
    draw = np.random.default_rng(rows).standard_normal
    gate_up = draw((EXPERTS, 2 * INNER, WIDTH), np.float32) / np.float32(WIDTH**0.5)
    down = draw((EXPERTS, WIDTH, INNER), np.float32) / np.float32(INNER**0.5)
    return draw((rows, WIDTH), np.float32), draw((rows, EXPERTS), np.float32), gate_up, down


def _stored(weights: Floats, fmt: BlockFormat) -> Floats:
    codes, scales = quantize(weights.reshape(-1, weights.shape[-1]), fmt)
    return dequantised(codes, scales, bits=fmt.bits).reshape(weights.shape)
