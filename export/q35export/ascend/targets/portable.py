"""The `portable` target: standard operators only. The unfused reference for the 310P's kernels.

Its decode keeps a KV cache that grows by one slot a step.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import onnx_ir as ir

from q35export.ascend.targets.chunked_delta_rule import ChunkedRule
from q35export.ascend.targets.standard import FLOAT, StandardTarget
from q35export.graph import Array
from q35export.targets.base import DeltaHeads, DeltaOperands


class PortableTarget(StandardTarget):
    """Recurrent states are `[1, NV, DK, DV]` FP32, as they are outside of the graph."""

    @cached_property
    def _chunked(self) -> ChunkedRule:
        return ChunkedRule(self.graph, self.longest)

    @staticmethod
    def empty_recurrent(shape: tuple[int, ...]) -> Array:
        """The state `shape` `[1, NV, DK, DV]` before the first token."""
        return np.zeros(shape, np.float32)

    def load_recurrent(self, stack: ir.Value) -> ir.Value:
        """`[Ll, NV, DK, DV]` FP32 as it is."""
        return stack

    def save_recurrent(self, stack: ir.Value) -> ir.Value:
        """`[Ll, NV, DK, DV]` FP32 as it is."""
        return stack

    def gated_delta_rule(
        self, given: DeltaOperands, heads: DeltaHeads
    ) -> tuple[ir.Value, ir.Value]:
        """The output `[T, NV, DV]` and the state, FP32."""
        wide = self.cast(given.value, self.dtype, FLOAT)
        value = self.graph.reshape(wide, -1, heads.value, heads.value_dim)
        query, key = (self._spread(part, heads) for part in (given.query, given.key))
        given = given._replace(query=query, key=key, value=value)
        return (self._step if self.tokens is None else self._chunked)(given, heads)

    def _spread(self, x: ir.Value, heads: DeltaHeads) -> ir.Value:
        """`[T, NK, DK]` as `[T, NV, DK]`: value head h reads key head h // (NV / NK)."""
        each = heads.value // heads.key
        if each == 1:
            return x
        apart = self.graph.op("Unsqueeze", x, self.graph.ints(2))
        wide = self.graph.op("Expand", apart, self.graph.ints(1, heads.key, each, heads.key_dim))
        return self.graph.reshape(wide, -1, heads.value, heads.key_dim)

    def _step(self, given: DeltaOperands, heads: DeltaHeads) -> tuple[ir.Value, ir.Value]:
        """One token: decay, recall, write, read."""
        op, reshape = self.graph.op, self.graph.reshape
        query, key, value, past, decay, beta = given
        kept = op("Mul", past, reshape(op("Exp", decay), 1, heads.value, 1, 1))
        row = reshape(key, 1, heads.value, 1, heads.key_dim)
        column = reshape(key, 1, heads.value, heads.key_dim, 1)
        value = reshape(value, 1, heads.value, 1, heads.value_dim)
        missing = op("Sub", value, op("MatMul", row, kept))
        rate = reshape(beta, 1, heads.value, 1, 1)
        present = op("Add", kept, op("Mul", column, op("Mul", missing, rate)))
        scaled = op("Mul", query, self.scalar(heads.scale))
        asked = reshape(scaled, 1, heads.value, 1, heads.key_dim)
        out = op("MatMul", asked, present)
        return reshape(out, 1, heads.value, heads.value_dim), present
