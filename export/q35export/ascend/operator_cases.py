"""The smallest graphs that try one kernel of the 310P each, with what must come out.

Shapes are those of the 4B model. Knows neither converter nor runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from q35export.ascend.ops import (
    chunk_gated_delta_rule,
    incre_flash_attention,
    recurrent_gated_delta_rule,
    scatter,
)
from q35export.ascend.ops.delta_rule import Array
from q35export.ascend.targets.standard import OPSET
from q35export.graph import Graph
from q35export.targets.base import AttentionHeads, DeltaHeads
from q35export.weights import WeightSink

ATTENTION = AttentionHeads(query=16, kv=4, dim=256)
DELTA = DeltaHeads(key=16, value=32, key_dim=128, value_dim=128)
TOKENS, VALID = 128, 100
_DELTA_INPUTS = ("query", "key", "value", "beta", "state", "g")

Values = tuple[ir.Value, ...]
Build = Callable[[Graph, Mapping[str, ir.Value]], Values]


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One graph: its inputs, and its outputs `out_0`, `out_1` as the kernel must compute them.

    `required` False marks what the model does not use: a failure there is news, not an error.
    """

    name: str
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]
    build: Build
    required: bool = True

    def save(self, path: Path) -> None:
        """Write the ONNX file."""
        graph = Graph("operator", OPSET, WeightSink())
        inputs = {
            name: graph.input(name, ir.DataType.from_numpy(array.dtype), array.shape)
            for name, array in self.inputs.items()
        }
        results = self.build(graph, inputs)
        for at, (value, array) in enumerate(zip(results, self.outputs, strict=True)):
            dtype = ir.DataType.from_numpy(array.dtype)
            graph.output(value, f"out_{at}", dtype, array.shape)
        ir.save(graph.model({}), path)


def operator_cases() -> Iterator[OperatorCase]:
    """Every case, cheap ones first."""
    for capacity in (17, 2048):
        yield _attention(capacity, expanded=True)
        yield _attention(capacity, expanded=False)
        yield _scatter(capacity, 0)
        yield _scatter(capacity, capacity - 1)
    for name in ("fresh", "continued", "padded"):
        yield _step(name)
    for name in ("fresh", "continued", "padded"):
        yield _chunk(name)


def _attention(capacity: int, *, expanded: bool) -> OperatorCase:
    """Half of the slots are read. The cache as it is kept is what 310P's tiler refuses."""
    heads, random = ATTENTION, np.random.default_rng(capacity)
    cache = (1, heads.kv, capacity, heads.dim)
    query = _half(random, 1, heads.query, 1, heads.dim)
    key, value = _half(random, *cache), _half(random, *cache)
    blocked = (np.arange(capacity) > capacity // 2).reshape(1, 1, 1, capacity)
    wanted = incre_flash_attention.reference(query, key, value, blocked, heads.scale)

    def build(graph: Graph, inputs: Mapping[str, ir.Value]) -> Values:
        keys, values, told = inputs["key"], inputs["value"], heads
        if expanded:
            keys, values = (
                incre_flash_attention.expand_heads(graph, part, heads, capacity)
                for part in (keys, values)
            )
            told = AttentionHeads(heads.query, heads.query, heads.dim)
        mask = inputs["atten_mask"]
        return (incre_flash_attention.node(graph, inputs["query"], keys, values, mask, told),)

    kept = "expanded" if expanded else "grouped"
    return OperatorCase(
        name=f"IncreFlashAttention, {capacity} slots, {kept} heads",
        inputs={"query": query, "key": key, "value": value, "atten_mask": blocked},
        outputs=(wanted,),
        build=build,
        required=expanded,
    )


def _scatter(capacity: int, slot: int) -> OperatorCase:
    random = np.random.default_rng(slot)
    shape = (1, ATTENTION.kv, capacity, ATTENTION.dim)
    cache, rows = _half(random, *shape), _half(random, 1, ATTENTION.kv, 1, ATTENTION.dim)
    at = np.array([slot], np.int64)

    def build(graph: Graph, inputs: Mapping[str, ir.Value]) -> Values:
        names = ("var", "indices", "updates")
        return (scatter.node(graph, *(inputs[name] for name in names), cache_shape=shape),)

    return OperatorCase(
        name=f"Scatter, slot {slot} of {capacity}",
        inputs={"var": cache, "indices": at, "updates": rows},
        outputs=(scatter.reference(cache, at, rows),),
        build=build,
    )


def _step(kind: str) -> OperatorCase:
    inputs = _delta_inputs(1, kind, valid=0 if kind == "padded" else 1)

    def build(graph: Graph, values: Mapping[str, ir.Value]) -> Values:
        query, key, value, beta, state, g = (values[name] for name in _DELTA_INPUTS)
        operands = recurrent_gated_delta_rule.Operands(query, key, value, beta, state, g)
        return recurrent_gated_delta_rule.node(graph, operands, DELTA)

    return OperatorCase(
        name=f"RecurrentGatedDeltaRule, {kind}",
        inputs=inputs,
        outputs=_delta_outputs(inputs, recurrent_gated_delta_rule.reference),
        build=build,
    )


def _chunk(kind: str) -> OperatorCase:
    inputs = _delta_inputs(TOKENS, kind, valid=VALID if kind == "padded" else TOKENS)

    def build(graph: Graph, values: Mapping[str, ir.Value]) -> Values:
        query, key, value, beta, state, g = (values[name] for name in _DELTA_INPUTS)
        length = graph.constant(np.array([TOKENS], np.int32))
        operands = chunk_gated_delta_rule.Operands(query, key, value, beta, state, length, g)
        return chunk_gated_delta_rule.node(graph, operands, DELTA)

    return OperatorCase(
        name=f"ChunkGatedDeltaRule, {TOKENS} tokens, {kind}",
        inputs=inputs,
        outputs=_delta_outputs(inputs, chunk_gated_delta_rule.reference),
        build=build,
    )


def _delta_inputs(tokens: int, kind: str, valid: int) -> dict[str, Array]:
    """Tokens from `valid` on are padding: neither decay nor beta."""
    heads, random = DELTA, np.random.default_rng(tokens)
    query, key = (_unit(random, tokens, heads.key, heads.key_dim) for _ in range(2))
    real = np.arange(tokens)[:, None] < valid
    state = _half(random, 1, heads.value, heads.value_dim, heads.key_dim)
    return {
        "query": query,
        "key": key,
        "value": _half(random, tokens, heads.value, heads.value_dim),
        "beta": (random.uniform(0, 1, (tokens, heads.value)) * real).astype(np.float16),
        "state": state * np.float16(kind != "fresh"),
        "g": (-random.uniform(0, 0.2, (tokens, heads.value)) * real).astype(np.float32),
    }


def _delta_outputs(
    inputs: Mapping[str, Array], reference: Callable[..., tuple[Array, Array]]
) -> tuple[Array, Array]:
    return reference(*(inputs[name] for name in _DELTA_INPUTS), DELTA.scale)


def _half(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float16)


def _unit(random: np.random.Generator, *shape: int) -> Array:
    rows = random.standard_normal(shape)
    unit: Array = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)
    return unit
