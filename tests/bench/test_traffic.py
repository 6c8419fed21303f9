from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from q35chat.bench.traffic import Traffic, traffic, weight_bytes
from q35chat.engine.contract import StatePair

FLOAT = np.dtype(np.float32)


def outside(name: str, shape: tuple[int, ...], offset: int, length: int) -> TensorProto:
    """A tensor whose bytes lie in a file beside the graph."""
    tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "model.bin"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def write(folder: Path, nodes: list[onnx.NodeProto], weights: list[TensorProto]) -> Path:
    path = folder / "model.onnx"
    graph = helper.make_graph(nodes, "graph", [], [], initializer=weights)
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def test_every_weight_counts_once_and_unused_ones_do_not(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("MatMul", ["y", "weight"], ["z"]),
    ]
    weights = [
        numpy_helper.from_array(np.ones((3, 5), np.float32), "weight"),
        numpy_helper.from_array(np.ones(99, np.float32), "unused"),
    ]

    assert weight_bytes(write(tmp_path, nodes, weights)) == 3 * 5 * 4


def test_of_a_table_that_is_looked_up_one_row_counts(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("GatherBlockQuantized", ["rows", "ids", "scales"], ["x"]),
        helper.make_node("MatMulNBits", ["x", "other", "other.scales"], ["y"]),
    ]
    weights = [
        outside("rows", (1000, 16), 0, 16_000),
        outside("scales", (1000, 4), 16_000, 4_000),
        outside("other", (7, 10), 20_000, 70),
        outside("other.scales", (7,), 20_070, 7),
    ]

    assert weight_bytes(write(tmp_path, nodes, weights)) == 16 + 4 + 70 + 7


def test_a_table_that_is_the_head_too_counts_whole_and_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("GatherBlockQuantized", ["rows", "ids", "scales"], ["x"]),
        helper.make_node("MatMulNBits", ["x", "head", "scales"], ["y"]),
    ]
    weights = [
        outside("rows", (1000, 16), 0, 16_000),
        outside("head", (1000, 2, 8), 0, 16_000),
        outside("scales", (1000, 4), 16_000, 4_000),
    ]

    assert weight_bytes(write(tmp_path, nodes, weights)) == 20_000


def test_of_experts_those_count_that_a_token_goes_through(tmp_path: Path) -> None:
    names = ["x", "scores", "gate_up", "gate_up.scales", "", "down", "down.scales"]
    nodes = [
        helper.make_node("MatMul", ["x", "router"], ["scores"]),
        helper.make_node("QMoE", names, ["y"], k=3),
    ]
    weights = [
        numpy_helper.from_array(np.ones((8, 12), np.float32), "router"),
        outside("gate_up", (12, 40, 16), 0, 7_680),
        outside("gate_up.scales", (12, 40, 1), 8_192, 1_920),
        outside("down", (12, 32, 10), 12_288, 3_840),
        outside("down.scales", (12, 32, 1), 16_384, 1_536),
    ]

    taken = (7_680 + 1_920 + 3_840 + 1_536) * 3 // 12
    assert weight_bytes(write(tmp_path, nodes, weights)) == 8 * 12 * 4 + taken


def test_weights_inside_a_branch_count(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("MatMul", ["x", "weight"], ["y"])], "then", [], [])
    nodes = [helper.make_node("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)]
    weights = [numpy_helper.from_array(np.ones((3, 5), np.float32), "weight")]

    assert weight_bytes(write(tmp_path, nodes, weights)) == 60


def test_states_count_whole_and_caches_by_the_slot(tmp_path: Path) -> None:
    pairs = [
        StatePair("past_conv_0", "present_conv_0", (1, 3, 10), FLOAT, False, False),
        StatePair("past_key_1", "present_key_1", (1, 2, 64, 8), FLOAT, True, True),
        StatePair("past_value_1", "present_value_1", (1, 2, 0, 8), FLOAT, True, False, grows=True),
    ]
    found = traffic(write(tmp_path, [], []), pairs)

    assert found == Traffic(weights=0, states=120, slot=2 * 2 * 8 * 4)
    assert found.at(9) == 120 + 10 * 128
