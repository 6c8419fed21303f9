"""The `ascend-310p` target: the 310P's fused kernels as Custom nodes, with their adapters.

A kernel sees flat, token-major FP16 (the decay alone is FP32) and states `[1, NV, DV, DK]`; the
outside sees `[NV, DK, DV]` FP32. States are turned and cast once for all layers on the way in, and
once on the way out. FP16 of a kernel never goes further than the next node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from q35export.ascend.ops import (
    StepTokens,
    chunk_gated_delta_rule,
    expand_heads,
    incre_flash_attention,
    recurrent_gated_delta_rule,
    scatter,
)
from q35export.ascend.targets.standard import FLOAT, FLOAT16, INT32, StandardTarget
from q35export.graph import Array
from q35export.targets.base import AttentionHeads, AttentionOperands, DeltaHeads, DeltaOperands


@dataclass
class Ascend310pTarget(StandardTarget):
    """Prefill: ChunkGatedDeltaRule. Decode, where there are no `tokens`: RecurrentGatedDeltaRule,
    Scatter and IncreFlashAttention over a cache of fixed capacity. A `step` of several tokens:
    RecurrentGatedDeltaRule alone, for the other two take one."""

    step: StepTokens | None = None
    kernel_dtype = FLOAT16
    _lengths: ir.Value | None = field(default=None, init=False)

    @staticmethod
    def empty_recurrent(shape: tuple[int, ...]) -> Array:
        """The state `shape` `[1, NV, DK, DV]` before the first token, in the kernel's layout."""
        batch, heads, key_dim, value_dim = shape
        return np.zeros((batch, heads, value_dim, key_dim), np.float16)

    def load_recurrent(self, stack: ir.Value) -> ir.Value:
        """`[Ll, NV, DK, DV]` FP32 in the kernel's layout and dtype."""
        turned = self.graph.op("Transpose", stack, perm=[0, 1, 3, 2])
        return self.cast(turned, FLOAT, FLOAT16)

    def save_recurrent(self, stack: ir.Value) -> ir.Value:
        """`[Ll, NV, DV, DK]` FP16 as the outside keeps it."""
        return self.graph.op("Transpose", self.cast(stack, FLOAT16, FLOAT), perm=[0, 1, 3, 2])

    def gated_delta_rule(
        self, given: DeltaOperands, heads: DeltaHeads
    ) -> tuple[ir.Value, ir.Value]:
        """The output `[T, NV, DV]` and the state `[1, NV, DV, DK]`, FP16."""
        flat = self.graph.reshape(given.value, -1, heads.value, heads.value_dim)
        given = given._replace(value=self.cast(flat, self.dtype, FLOAT16))
        step = self.step
        if self.tokens is None:
            step = StepTokens.fixed(self.graph, 1)
        if step is not None:
            return recurrent_gated_delta_rule(self.graph, given, step, heads)
        return chunk_gated_delta_rule(self.graph, given, self._token_count(given.query), heads)

    def _token_count(self, query: ir.Value) -> ir.Value:
        """T as `[1]` int32 from the shape of the first layer's query; all layers have as many."""
        if self._lengths is None:
            op, ints = self.graph.op, self.graph.ints
            count = op("Slice", op("Shape", query), ints(0), ints(1))
            self._lengths = op("Cast", count, to=int(INT32))
        return self._lengths

    def attention(
        self, given: AttentionOperands, heads: AttentionHeads
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """In a prefill as everywhere; in decode `slots` are the slot to write, `[1]` int64, and the
        blocked ones, `[1, 1, 1, C]` bool, and `past` is `[1, NKV, C, HD]` FP16."""
        if self.tokens is not None or given.past is None:
            return super().attention(given, heads)
        graph, (slot, blocked) = self.graph, given.slots
        capacity = self._capacity(given.past[0])
        query = self._one_token(given.query, heads.query, heads)
        caches = []
        for cache, rows in zip(given.past, (given.key, given.value), strict=True):
            one = self._one_token(rows, heads.kv, heads)
            shape = (1, heads.kv, capacity, heads.dim)
            caches.append(scatter(graph, cache, slot, one, shape))
        key, value = (expand_heads(graph, cache, heads, capacity) for cache in caches)
        told = AttentionHeads(heads.query, heads.query, heads.dim)
        out = incre_flash_attention(graph, query, key, value, blocked, told)
        flat = graph.reshape(out, 1, 1, heads.query * heads.dim)
        return self.cast(flat, FLOAT16, self.dtype), caches[0], caches[1]

    def _one_token(self, x: ir.Value, count: int, heads: AttentionHeads) -> ir.Value:
        rows = self.graph.reshape(x, 1, count, 1, heads.dim)
        return self.cast(rows, self.dtype, FLOAT16)

    @staticmethod
    def _capacity(cache: ir.Value) -> int:
        assert cache.shape is not None
        slots = cache.shape[2]
        assert isinstance(slots, int)
        return slots
