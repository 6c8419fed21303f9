"""The fused operators as the exporter writes them, run by the executor's kernels; and these against
the chunked rule in standard operators and against what is computed here."""

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
    MOST_STEP_TOKENS,
    StepTokens,
    chunk_gated_delta_rule,
    expand_heads,
    incre_flash_attention,
    recurrent_gated_delta_rule,
    scatter,
)
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.reference.contracts import CustomNode
from q35export.ascend.reference.kernels import delta_rule, run_kernel
from q35export.ascend.targets.chunked_delta_rule import ChunkedRule
from q35export.ascend.targets.standard import OPSET
from q35export.graph import Graph
from q35export.targets.base import AttentionHeads, DeltaHeads, DeltaOperands
from q35export.verify.metrics import difference
from q35export.weights import WeightSink
from tests.ascend.conftest import Export
from tests.support.ascend import AscendChat

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


def by_kernel(folder: Path, arrays: dict[str, Array]) -> tuple[Array, Array]:
    """Output and state of the fused node for a step of so few tokens, else for a prefill."""
    lengths = np.array([len(arrays["query"])], np.int32)
    few = lengths[0] <= MOST_STEP_TOKENS

    def build(graph: Graph, **v: ir.Value) -> Any:
        given = DeltaOperands(v["query"], v["key"], v["value"], v["state"], v["g"], v["beta"])
        if few:
            step = StepTokens.fixed(graph, int(lengths[0]))
            return recurrent_gated_delta_rule(graph, given, step, HEADS)
        return chunk_gated_delta_rule(graph, given, v["lengths"], HEADS)

    fed = arrays if few else arrays | {"lengths": lengths}
    found = one_node(folder, fed, build).run(fed)
    return found["result_0"], found["result_1"]


@pytest.mark.parametrize("slot", [0, 9, 16])
def test_scatter_writes_one_slot_and_nothing_else(tmp_path: Path, slot: int) -> None:
    generator = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "cache": half_normal(generator, 1, 2, 17, 8),
        "slot": np.array([slot], np.int64),
        "rows": half_normal(generator, 1, 2, 1, 8),
    }

    def build(graph: Graph, cache: ir.Value, slot: ir.Value, rows: ir.Value) -> ir.Value:
        return scatter(graph, cache, slot, rows, (1, 2, 17, 8))

    found = one_node(tmp_path, arrays, build).run(arrays)["result_0"]
    cache, _, rows = arrays.values()
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
        key, value = (expand_heads(graph, v[name], heads, capacity) for name in ("key", "value"))
        return incre_flash_attention(graph, v["query"], key, value, v.get("blocked"), told)

    found = one_node(tmp_path, fed, build).run(fed)["result_0"]
    query, key, value = (array.astype(np.float64) for array in arrays.values())
    key, value = (np.repeat(part, query_heads // kv_heads, 1) for part in (key, value))
    scores = query @ key.swapaxes(2, 3) * heads.scale
    shares = np.exp(scores if blocked is None else np.where(blocked, -np.inf, scores))
    wanted = shares / shares.sum(axis=-1, keepdims=True) @ value
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_heads_that_do_not_divide_are_refused() -> None:
    graph = Graph("one", OPSET, WeightSink())
    cache = graph.input("cache", HALF, (1, 4, 17, 8))
    with pytest.raises(ExportError, match="6 attention heads cannot share 4"):
        expand_heads(graph, cache, AttentionHeads(6, 4, 8), 17)


def test_an_empty_list_of_optional_inputs_is_a_typed_list() -> None:
    graph = Graph("one", OPSET, WeightSink())
    value = graph.input("cache", HALF, (1, 2, 17, 8))
    written = scatter(graph, value, value, value, (1, 2, 17, 8))
    graph.output(written, "out", HALF, (1, 2, 17, 8))
    (node,) = ir.to_proto(graph.model({})).graph.node
    (optional,) = (a for a in node.attribute if a.name == "optional_input_names")
    assert optional.type == onnx.AttributeProto.STRINGS
    assert not optional.strings


@pytest.mark.parametrize(
    ("tokens", "decay", "same_keys"),
    [
        *((tokens, decay, False) for tokens in (1, 63, 64, 65, 200) for decay in (0.01, 2.0, 30.0)),
        *((tokens, 0.001, True) for tokens in (1, 64, 100, 256)),
    ],
)
def test_the_chunked_rule_in_standard_operators_agrees_with_the_kernels_token_by_token(
    tmp_path: Path, tokens: int, decay: float, same_keys: bool
) -> None:
    """Keys that repeat make the chunk's system as ill-behaved as it gets."""
    arrays = delta_arrays(tokens, same_keys=same_keys, decay=decay)
    out, final = by_kernel(tmp_path, arrays)
    wide = {
        "query": np.repeat(arrays["query"], 3, axis=1),
        "key": np.repeat(arrays["key"], 3, axis=1),
        "value": arrays["value"],
        "past": np.ascontiguousarray(arrays["state"].swapaxes(2, 3)),
        "decay": arrays["g"],
        "beta": arrays["beta"],
    }
    fed = {name: array.astype(np.float32) for name, array in wide.items()}

    def build(graph: Graph, **v: ir.Value) -> Any:
        rule = ChunkedRule(graph, longest=256)(DeltaOperands(**v), HEADS)
        for value, shape in zip(rule, (("T", 6, 24), (1, 6, 16, 24)), strict=True):
            value.type, value.shape = ir.TensorType(FLOAT), ir.Shape(shape)
        return rule

    found = one_node(tmp_path, fed, build).run(fed)
    np.testing.assert_allclose(found["result_0"], out, atol=4e-3)
    np.testing.assert_allclose(found["result_1"].swapaxes(2, 3), final, atol=4e-3)


def few_tokens(tokens: int, slots: int) -> tuple[CustomNode, list[Array]]:
    """A node of the recurrent rule and its operands, the state in so many slots."""
    arrays = delta_arrays(tokens)
    state = half_normal(np.random.default_rng(2), slots, *arrays["state"].shape[1:])
    shape = "3,-1,6,24,4,-1,6,24,16,"
    attributes = {"scale_value": HEADS.scale, "outputs_shape": shape}
    node = CustomNode("rule", "RecurrentGatedDeltaRule", (), (), attributes)
    given = [arrays[name] for name in ("query", "key", "value", "beta")]
    numbers = (np.array([tokens], np.int32), np.arange(tokens, dtype=np.int32) % slots)
    return node, [*given, state, *numbers, arrays["g"], np.array([1], np.int32)]


def test_the_recurrent_rule_goes_on_behind_the_last_token_accepted_and_keeps_every_state() -> None:
    node, operands = few_tokens(4, 5)
    state, g = operands[4], operands[7]
    operands[6], operands[8] = np.array([2, 0, 4, 1], np.int32), np.array([3], np.int32)
    out, states = run_kernel(node, operands)

    for count in range(1, 5):
        parts = [array[:count] for array in operands[:4]]
        rows, after = delta_rule((*parts, state[4:5], g[:count]), HEADS.scale)
        np.testing.assert_array_equal(out[:count], rows)
        np.testing.assert_array_equal(states[operands[6][count - 1]], after[0])
    np.testing.assert_array_equal(states[3], state[3])


@pytest.mark.parametrize(
    ("tokens", "operand", "value", "message"),
    [
        (4, 8, [5], "num_accepted_tokens is 5 for 4 tokens"),
        (4, 8, [0], "num_accepted_tokens is 0 for 4 tokens"),
        (4, 5, [3], "actual_seq_lengths is 3 for 4 tokens"),
        (9, 5, [9], "actual_seq_lengths is 9 for 9 tokens, of which it takes 1 to 8"),
        (4, 6, [0, 1, 2, 4], "of 4 slots"),
        (4, 6, [0], r"ssm_state_indices must be int32 \[4\]"),
    ],
)
def test_what_the_recurrent_rule_would_misread_is_refused(
    tokens: int, operand: int, value: list[int], message: str
) -> None:
    node, operands = few_tokens(tokens, 4)
    operands[operand] = np.array(value, np.int32)
    with pytest.raises(ExportError, match=message):
        run_kernel(node, operands)


SHAPES = ("plain", "even", "full_first", "mostly_linear")


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tensor_of_fused_graphs_is_near_its_unfused_one(
    exported: Export, shape: str, dtype: str
) -> None:
    fused = exported(shape, dtype=dtype)
    unfused = exported(shape, dtype=dtype, fused_prefill=False, fused_decode=False)
    ids = np.random.default_rng(3).integers(0, fused.config.text.vocab_size - 20, 40).tolist()
    chats = [AscendChat(fused), AscendChat(unfused)]
    for step in range(-1, 8):
        logits = [
            chat.prefill(ids[:30]) if step < 0 else chat.step(ids[30 + step]) for chat in chats
        ]
        found, wanted = (
            {"logits": row, **chat.by_layer()} for chat, row in zip(chats, logits, strict=True)
        )
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            apart = difference(found[name], tensor)
            assert apart.cosine >= 0.999, f"step {step} {name}: {apart}"
            assert apart.nrmse <= 0.02, f"step {step} {name}: {apart}"
            assert apart.max_abs <= 1.0, f"step {step} {name}: {apart}"
