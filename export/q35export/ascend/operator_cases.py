"""The smallest graphs that try one kernel of the 310P each, in each way that it may be written,
with what must come out, as the reference executor has it; and what to do for those that fail.

Shapes are those of the 4B model. Knows neither converter nor runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from q35chat.text import pluralise
from q35export.ascend import ops
from q35export.ascend.forms import AS_EXPORTED, RECURRENT, RECURRENT_310P, KernelForms, rewrite
from q35export.ascend.graphs.options import LONGEST_INT8
from q35export.ascend.reference.kernels import attention, delta_rule, scattered
from q35export.ascend.targets.standard import FLOAT16, OPSET
from q35export.graph import Array, Dim, Graph
from q35export.int8_rows import packed, rounded_inputs, rounded_rows, row_codes
from q35export.targets.base import AttentionHeads, DeltaHeads, DeltaOperands, Values
from q35export.weights import WeightSink

ATTENTION = AttentionHeads(query=16, kv=4, dim=256)
DELTA = DeltaHeads(key=16, value=32, key_dim=128, value_dim=128)
TOKENS, VALID = 128, 100
STEP_TOKENS = 4
_ROWS, _WIDTH = 1024, 2560
_STEP = 1 / 32

_INSTEAD = {
    "continued": KernelForms(fresh_prefill=True),
    "padded": KernelForms(exact_prefill=True),
}
_ONE_BY_ONE = KernelForms(single_steps=True)
Build = Callable[[Graph, Mapping[str, ir.Value]], Values]


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One graph: its inputs, and its outputs `out_0`, `out_1` as the kernel must compute them.

    `required` False marks what the model does not use: a failure there is news, not an error. The
    node is written in `forms`. Of the cases of one `choice`, those of one form have to work;
    `instead` is what helps where none of the cases with it does. One `in_int8` has scales that must
    stay 64 bits wide.
    """

    name: str
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]
    build: Build
    required: bool = True
    forms: KernelForms = AS_EXPORTED
    choice: str = ""
    in_int8: bool = False
    instead: KernelForms | None = None

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
        model = graph.model({})
        rewrite(model, self.forms)
        ir.save(model, path)


def working_forms(results: Sequence[tuple[OperatorCase, bool]]) -> KernelForms | None:
    """The forms that a bundle needs after these cases passed or failed, the first that work; None
    where there is no way."""
    found, ways = AS_EXPORTED, dict[str, dict[KernelForms, bool]]()
    helped = dict[KernelForms, bool]()
    for case, passed in results:
        if case.choice:
            tried = ways.setdefault(case.choice, {})
            tried[case.forms] = tried.get(case.forms, True) and passed
        elif case.instead:
            helped[case.instead] = helped.get(case.instead, False) or passed
        elif not passed and case.required:
            return None
    for instead in (forms for forms, works in helped.items() if not works):
        found = found.joined(instead)
    for tried in ways.values():
        working = next((forms for forms, works in tried.items() if works), None)
        if working is None:
            return None
        found = found.joined(working)
    return found


def operator_cases() -> Iterator[OperatorCase]:
    """Every case, cheap ones first."""
    for capacity in (17, 2048):
        yield _attention(capacity, expanded=True)
        yield _attention(capacity, expanded=False)
        for forms in (AS_EXPORTED, KernelForms(selected_cache=True)):
            yield _cache_write(capacity, 0, forms)
            yield _cache_write(capacity, capacity - 1, forms)
    for kind in ("fresh", "continued", "padded"):
        yield _delta_rule(RECURRENT, kind, 1, valid=0)
    yield from _other_recurrent_forms()
    yield from _several_tokens()
    for kind in ("fresh", "continued", "padded"):
        yield _delta_rule(f"ChunkGatedDeltaRule, {TOKENS} tokens", kind, TOKENS, valid=VALID)
    for tokens in (1, TOKENS, LONGEST_INT8):
        yield _int8_product(tokens)


def _other_recurrent_forms() -> Iterator[OperatorCase]:
    """The kernel's other name and the other order of its inputs, over a state."""
    for name in (RECURRENT, RECURRENT_310P):
        for ordered in (False, True):
            forms = KernelForms(name == RECURRENT_310P, ordered)
            if forms != AS_EXPORTED:
                case = _delta_rule(name, "continued", 1, valid=0)
                order = ", inputs in order" if ordered else ""
                yield replace(case, name=f"{name}{order}, continued", forms=forms)


def _several_tokens() -> Iterator[OperatorCase]:
    """A step of several tokens, by either name of the kernel and in either order of its inputs."""
    for name in (RECURRENT, RECURRENT_310P):
        for ordered in (False, True):
            case = _delta_rule(name, "continued", STEP_TOKENS, valid=0)
            order = ", inputs in order" if ordered else ""
            yield replace(
                case,
                name=f"{name}{order}, {STEP_TOKENS} tokens",
                forms=KernelForms(name == RECURRENT_310P, ordered),
                instead=_ONE_BY_ONE,
            )


def _attention(capacity: int, *, expanded: bool) -> OperatorCase:
    """Half of the slots are read. The cache as it is kept is what 310P's tiler refuses."""
    heads, random = ATTENTION, np.random.default_rng(capacity)
    cache = (1, heads.kv, capacity, heads.dim)
    query = _half(random, 1, heads.query, 1, heads.dim)
    key, value = _half(random, *cache), _half(random, *cache)
    blocked = (np.arange(capacity) > capacity // 2).reshape(1, 1, 1, capacity)
    wide = [np.repeat(part, heads.query // heads.kv, axis=1) for part in (key, value)]

    def build(graph: Graph, inputs: Mapping[str, ir.Value]) -> Values:
        keys, values, told = inputs["key"], inputs["value"], heads
        if expanded:
            keys, values = (
                ops.expand_heads(graph, part, heads, capacity) for part in (keys, values)
            )
            told = AttentionHeads(heads.query, heads.query, heads.dim)
        mask = inputs["atten_mask"]
        return (ops.incre_flash_attention(graph, inputs["query"], keys, values, mask, told),)

    kept = "expanded" if expanded else "grouped"
    return OperatorCase(
        name=f"IncreFlashAttention, {capacity} slots, {kept} heads",
        inputs={"query": query, "key": key, "value": value, "atten_mask": blocked},
        outputs=(attention(query, wide[0], wide[1], blocked, heads.scale),),
        build=build,
        required=expanded,
    )


def _cache_write(capacity: int, slot: int, forms: KernelForms) -> OperatorCase:
    random = np.random.default_rng(slot)
    shape = (1, ATTENTION.kv, capacity, ATTENTION.dim)
    cache, rows = _half(random, *shape), _half(random, 1, ATTENTION.kv, 1, ATTENTION.dim)

    def build(graph: Graph, inputs: Mapping[str, ir.Value]) -> Values:
        var, indices, updates = inputs.values()
        return (ops.scatter(graph, var, indices, updates, shape),)

    return OperatorCase(
        name=f"{'Selection' if forms.selected_cache else 'Scatter'}, slot {slot} of {capacity}",
        inputs={"var": cache, "indices": np.array([slot], np.int64), "updates": rows},
        outputs=(scattered(cache, slot, rows),),
        build=build,
        forms=forms,
        choice="cache",
    )


def _delta_rule(name: str, kind: str, tokens: int, valid: int) -> OperatorCase:
    """Few tokens in a step, many in a chunk. Where they are "padded", those from `valid` on are
    padding: neither decay nor beta."""
    heads, random = DELTA, np.random.default_rng(tokens)
    chunked = tokens > ops.MOST_STEP_TOKENS
    query, key = (_unit(random, tokens, heads.key, heads.key_dim) for _ in range(2))
    real = np.arange(tokens)[:, None] < (valid if kind == "padded" else tokens)
    state = _half(random, 1, heads.value, heads.value_dim, heads.key_dim)
    inputs: dict[str, Array] = {
        "query": query,
        "key": key,
        "value": _half(random, tokens, heads.value, heads.value_dim),
        "beta": (random.uniform(0, 1, (tokens, heads.value)) * real).astype(np.float16),
        "state": state * np.float16(kind != "fresh"),
        "g": (-random.uniform(0, 0.2, (tokens, heads.value)) * real).astype(np.float32),
    }

    def build(graph: Graph, values: Mapping[str, ir.Value]) -> Values:
        query, key, value, beta, state, g = values.values()
        given = DeltaOperands(query, key, value, state, g, beta)
        if not chunked:
            step = ops.StepTokens.fixed(graph, tokens)
            return ops.recurrent_gated_delta_rule(graph, given, step, heads)
        lengths = graph.constant(np.array([tokens], np.int32))
        return ops.chunk_gated_delta_rule(graph, given, lengths, heads)

    return OperatorCase(
        name=f"{name}, {kind}",
        inputs=inputs,
        outputs=delta_rule(inputs.values(), heads.scale),
        build=build,
        choice="recurrent" if tokens == 1 else "",
        instead=_INSTEAD.get(kind) if chunked else None,
    )


def _int8_product(tokens: int) -> OperatorCase:
    """A projection in int8, which only bundles of that precision have."""
    random = np.random.default_rng(tokens)
    x = _half(random, 1, tokens, _WIDTH)
    weights = random.standard_normal((_ROWS, _WIDTH)).astype(np.float32)
    codes, scales = row_codes(weights, _STEP)

    def build(graph: Graph, inputs: Mapping[str, ir.Value]) -> Values:
        shape: list[Dim] = [1, tokens]
        rounded = ops.ascend_quant(graph, inputs["x"], FLOAT16, _STEP, [*shape, _WIDTH])
        stored = graph.constant(codes), graph.constant(packed(scales))
        return (ops.quant_batch_matmul(graph, rounded, *stored, [*shape, _ROWS]),)

    inputs = rounded_inputs(x.astype(np.float32), _STEP).astype(np.float64)
    product = inputs @ rounded_rows(weights, _STEP).astype(np.float64).T
    return OperatorCase(
        name=f"QuantBatchMatmul, {pluralise(tokens, 'token')}",
        inputs={"x": x},
        outputs=(product.astype(np.float16),),
        build=build,
        required=False,
        in_int8=True,
    )


def _half(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float16)


def _unit(random: np.random.Generator, *shape: int) -> Array:
    rows = random.standard_normal(shape)
    unit: Array = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)
    return unit
