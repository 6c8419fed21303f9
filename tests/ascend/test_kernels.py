"""The exporter's references of the fused operators against the executor's kernels, which were
written apart from them, and the chunked rule in standard operators against both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from q35chat.errors import ExportError
from q35export.ascend.ops import (
    chunk_gated_delta_rule,
    incre_flash_attention,
    recurrent_gated_delta_rule,
    scatter,
)
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.targets.chunked_delta_rule import ChunkedRule
from q35export.ascend.targets.standard import OPSET
from q35export.graph import Graph
from q35export.targets.base import AttentionHeads, DeltaHeads
from q35export.weights import WeightSink

HALF, FLOAT, BOOL = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.BOOL
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
HEADS = DeltaHeads(key=2, value=6, key_dim=16, value_dim=24)
Array = np.ndarray[Any, Any]
Build = Callable[..., Any]


def one_node(folder: Path, arrays: dict[str, Array], build: Build) -> GraphExecutor:
    """A graph of one operator; `build` gets the graph and an input for each array."""
    graph = Graph("one", OPSET, WeightSink())
    inputs = {
        name: graph.input(name, ir.DataType.from_numpy(array.dtype), array.shape)
        for name, array in arrays.items()
    }
    results = build(graph, **inputs)
    for index, value in enumerate(results if isinstance(results, tuple) else (results,)):
        graph.output(value, f"result_{index}", value.dtype or FLOAT, value.shape or ("A", "B"))
    ir.save(graph.model({}), folder / "one.onnx")
    return GraphExecutor(folder / "one.onnx")


def half_normal(generator: np.random.Generator, *shape: int) -> Array:
    return generator.standard_normal(shape).astype(np.float16)


def delta_arrays(tokens: int, *, same_keys: bool = False, decay: float = 2.0) -> dict[str, Array]:
    generator = np.random.default_rng(tokens)

    def unit(rows: int) -> Array:
        heads = generator.standard_normal((rows, HEADS.key, HEADS.key_dim))
        return np.asarray(heads / np.linalg.norm(heads, axis=-1, keepdims=True))

    keys = np.repeat(unit(1), tokens, axis=0) if same_keys else unit(tokens)
    values = generator.standard_normal((tokens, HEADS.value, HEADS.value_dim))
    state = generator.standard_normal((1, HEADS.value, HEADS.value_dim, HEADS.key_dim))
    rates = generator.uniform(0.9 if same_keys else 0, 1, (tokens, HEADS.value))
    g = -decay * generator.uniform(0, 1, (tokens, HEADS.value)).astype(np.float32)
    half = {"query": unit(tokens), "key": keys, "value": values, "beta": rates, "state": state}
    return {name: array.astype(np.float16) for name, array in half.items()} | {"g": g}


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("decay", [0.01, 2.0, 30.0])
def test_chunked_and_token_by_token_delta_rules_agree(
    tmp_path: Path, tokens: int, decay: float
) -> None:
    arrays = delta_arrays(tokens, decay=decay)
    lengths = np.array([tokens], np.int32)

    def build(graph: Graph, **v: ir.Value) -> Any:
        operands = chunk_gated_delta_rule.Operands(
            v["query"], v["key"], v["value"], v["beta"], v["state"], v["lengths"], v["g"]
        )
        return chunk_gated_delta_rule.node(graph, operands, HEADS)

    found = one_node(tmp_path, arrays | {"lengths": lengths}, build).run(
        arrays | {"lengths": lengths}
    )
    query, key, value, beta, state, g = arrays.values()
    out, final = chunk_gated_delta_rule.reference(query, key, value, beta, state, g, HEADS.scale)
    np.testing.assert_allclose(found["result_0"], out, atol=4e-3)
    np.testing.assert_allclose(found["result_1"], final, atol=4e-3)


def test_one_step_of_the_delta_rule(tmp_path: Path) -> None:
    arrays = delta_arrays(1)

    def build(graph: Graph, **v: ir.Value) -> Any:
        return recurrent_gated_delta_rule.node(
            graph, recurrent_gated_delta_rule.Operands(**v), HEADS
        )

    found = one_node(tmp_path, arrays, build).run(arrays)
    query, key, value, beta, past, g = arrays.values()
    out, state = recurrent_gated_delta_rule.reference(query, key, value, beta, past, g, HEADS.scale)
    np.testing.assert_allclose(found["result_0"], out, atol=2e-3)
    np.testing.assert_allclose(found["result_1"], state, atol=2e-3)


@pytest.mark.parametrize("slot", [0, 9, 16])
def test_scatter_writes_one_slot_and_nothing_else(tmp_path: Path, slot: int) -> None:
    generator = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "cache": half_normal(generator, 1, 2, 17, 8),
        "slot": np.array([slot], np.int64),
        "rows": half_normal(generator, 1, 2, 1, 8),
    }

    def build(graph: Graph, cache: ir.Value, slot: ir.Value, rows: ir.Value) -> ir.Value:
        return scatter.node(graph, cache, slot, rows, cache_shape=(1, 2, 17, 8))

    found = one_node(tmp_path, arrays, build).run(arrays)["result_0"]
    cache, index, rows = arrays.values()
    np.testing.assert_array_equal(found, scatter.reference(cache, index, rows))
    np.testing.assert_array_equal(found[:, :, slot : slot + 1], rows)
    others = np.arange(17) != slot
    np.testing.assert_array_equal(found[:, :, others], cache[:, :, others])


@pytest.mark.parametrize("capacity", [17, 2048])
@pytest.mark.parametrize(("query_heads", "kv_heads"), [(4, 4), (8, 2), (6, 1)])
@pytest.mark.parametrize("filled", [1, 11, None])
def test_incre_flash_attention_reads_the_slots_that_are_not_blocked(
    tmp_path: Path, capacity: int, query_heads: int, kv_heads: int, filled: int | None
) -> None:
    generator = np.random.default_rng(1)
    heads = AttentionHeads(query_heads, kv_heads, 16)
    told = AttentionHeads(query_heads, query_heads, 16)
    arrays = {
        "query": half_normal(generator, 1, query_heads, 1, 16),
        "key": half_normal(generator, 1, kv_heads, capacity, 16),
        "value": half_normal(generator, 1, kv_heads, capacity, 16),
    }
    blocked = None if filled is None else (np.arange(capacity) >= filled)[None, None, None]
    fed = arrays if blocked is None else arrays | {"blocked": blocked}

    def build(graph: Graph, **v: ir.Value) -> ir.Value:
        key, value = (
            incre_flash_attention.expand_heads(graph, v[name], heads, capacity)
            for name in ("key", "value")
        )
        return incre_flash_attention.node(graph, v["query"], key, value, v.get("blocked"), told)

    found = one_node(tmp_path, fed, build).run(fed)["result_0"]
    query, key, value = arrays.values()
    wanted = incre_flash_attention.reference(query, key, value, blocked, heads.scale)
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_heads_that_do_not_divide_are_refused() -> None:
    graph = Graph("one", OPSET, WeightSink())
    cache = graph.input("cache", HALF, (1, 4, 17, 8))
    with pytest.raises(ExportError, match="6 attention heads cannot share 4"):
        incre_flash_attention.expand_heads(graph, cache, AttentionHeads(6, 4, 8), 17)


def test_an_empty_list_of_optional_inputs_is_a_typed_list() -> None:
    graph = Graph("one", OPSET, WeightSink())
    value = graph.input("cache", HALF, (1, 2, 17, 8))
    written = scatter.node(graph, value, value, value, cache_shape=(1, 2, 17, 8))
    graph.output(written, "out", HALF, (1, 2, 17, 8))
    (node,) = ir.to_proto(graph.model({})).graph.node
    (optional,) = (a for a in node.attribute if a.name == "optional_input_names")
    assert optional.type == onnx.AttributeProto.STRINGS
    assert not optional.strings


@pytest.mark.parametrize("same_keys", [False, True])
@pytest.mark.parametrize("tokens", [1, 64, 100, 256])
def test_the_rule_in_standard_operators_agrees_with_the_kernel(
    tmp_path: Path, tokens: int, same_keys: bool
) -> None:
    """Keys that repeat make the chunk's system as ill-behaved as it gets."""
    arrays = delta_arrays(tokens, same_keys=same_keys, decay=0.001 if same_keys else 1.0)
    query, key, value, beta, state, g = arrays.values()
    out, final = chunk_gated_delta_rule.reference(query, key, value, beta, state, g, HEADS.scale)
    wide = {
        "query": np.repeat(arrays["query"], 3, axis=1),
        "key": np.repeat(arrays["key"], 3, axis=1),
        "value": arrays["value"],
        "state": np.ascontiguousarray(arrays["state"].swapaxes(2, 3)),
        "decay": arrays["g"],
        "beta": arrays["beta"],
    }
    fed = {name: array.astype(np.float32) for name, array in wide.items()}

    def build(graph: Graph, **v: ir.Value) -> Any:
        rule = ChunkedRule(graph, longest=256)(**v, heads=HEADS)
        for value, shape in zip(rule, (("T", 6, 24), (1, 6, 16, 24)), strict=True):
            value.type, value.shape = ir.TensorType(FLOAT), ir.Shape(shape)
        return rule

    found = one_node(tmp_path, fed, build).run(fed)
    np.testing.assert_allclose(found["result_0"], out, atol=4e-3)
    np.testing.assert_allclose(found["result_1"].swapaxes(2, 3), final, atol=4e-3)
