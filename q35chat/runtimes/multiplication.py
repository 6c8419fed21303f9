"""Whether this processor multiplies stored weights as it should: one small matrix of each format.

ONNX Runtime has other instructions for each kind of processor, and some were wrong on one kind only
(its issue 29853). Inputs and weights are whole numbers whose products come out exactly, whatever
the order of the sums.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from q35chat.runtimes.onnxruntime import OrtSession

FORMATS = tuple((bits, block) for bits in (4, 8) for block in (32, 64, 128))
"""Bits of a code and values of a block, as an export writes them."""
_N, _K, _PEAK = 48, 256, 127
_ROWS = (1, 5)  # a step, and a piece of a prompt: each has instructions of its own


def wrong_formats() -> list[tuple[int, int]]:
    """The formats that are multiplied wrongly here."""
    return [each for each in FORMATS if not all(_is_right(*each, rows) for rows in _ROWS)]


def main() -> None:
    """Print them as `q35chat.diagnosis` reads it."""
    wrong = [f"{bits} bits in blocks of {block}" for bits, block in wrong_formats()]
    print(json.dumps({"version": "1", "missing": wrong, "note": ""}))  # noqa: T201 - to a parent


def _is_right(bits: int, block: int, rows: int) -> bool:
    rng = np.random.default_rng(bits * block)
    x = rng.integers(-_PEAK, _PEAK + 1, (rows, _K)).astype(np.float32)
    x[:, ::block] = _PEAK  # so that rounding an input to int8 leaves it as it is
    half = 1 << (bits - 1)
    codes = rng.integers(0, 2 * half, (_N, _K)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(_graph(codes, bits, block, rows), path)
        session = OrtSession(path, threads=1)
        given = session.allocate((rows, _K), np.dtype(np.float32))
        found = session.allocate((rows, _N), np.dtype(np.float32))
        given.write(x)
        session.bind({"x": given}, {"y": found})()
        product = found.host().copy()
        session.close()
    return np.array_equal(product, x @ (codes.astype(np.float32) - half).T)


def _graph(codes: npt.NDArray[np.uint8], bits: int, block: int, rows: int) -> onnx.ModelProto:
    packed = codes if bits == 8 else codes[:, 0::2] | (codes[:, 1::2] << 4)
    weights = packed.reshape(_N, _K // block, block * bits // 8)
    scales = np.ones((_N, _K // block), np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "weights", "scales"],
        ["y"],
        domain="com.microsoft",
        K=_K,
        N=_N,
        bits=bits,
        block_size=block,
        accuracy_level=4,
    )
    graph = helper.make_graph(
        [node],
        "multiplication",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, _K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, _N])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
