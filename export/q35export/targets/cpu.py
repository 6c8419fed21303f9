"""Operators of the `cpu` target: ONNX Runtime's fused kernels of the domain `com.microsoft`.

Each method answers one request of the blocks. Activations are `[1, T, width]` FP32 throughout.
The contracts are those of ONNX Runtime's operator schemas (`docs/ContribOperators.md` there).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.config import Rope
from q35export.graph import Graph
from q35export.matrix import Matrix
from q35export.precision import Quantisation, StoredAs
from q35export.targets.base import (
    AttentionHeads,
    AttentionOperands,
    DeltaHeads,
    DeltaOperands,
    HeadNorms,
    PatchHeads,
    Routing,
    Values,
)
from q35export.targets.cpu_attention import FilledRows, one_row
from q35export.targets.cpu_weights import MS, CpuMatrix, store, store_experts

OPSET = 23
Float32 = npt.NDArray[np.float32]


class CpuTarget:
    """Adds ONNX Runtime CPU nodes to a graph."""

    def __init__(self, graph: Graph, matrices: Mapping[str, StoredAs] | None = None) -> None:
        self.graph = graph
        self.matrices = matrices or {}

    # Projections -----------------------------------------------------------------------------

    def store(self, name: str, weights: Matrix, quantised: Quantisation | None) -> CpuMatrix:
        """Write a matrix that is used more than once."""
        return store(self.graph, name, weights, quantised, self.matrices)

    def project(
        self,
        x: ir.Value,
        name: str,
        weights: Matrix,
        quantised: Quantisation | None,
        bias: Float32 | None = None,
    ) -> ir.Value:
        """`x @ weights.T + bias`."""
        value = None if bias is None else self.graph.weight(f"{name}.bias", bias)
        return self.store(name, weights, quantised).multiply(x, value)

    def experts(
        self,
        x: ir.Value,
        routing: Routing,
        gate_up: Matrix,
        down: Matrix,
        quantised: Quantisation | None,
    ) -> ir.Value:
        """The weighted sum of `down(silu(gate(x)) * up(x))` over the experts of each token.

        The kernels take the softmax of the scores themselves; on the CPU they want the rows of gate
        and up in turn (`swiglu_fusion` 1), and with `activation_beta` 0 and no limit their SwiGLU
        is the plain one.
        """
        stored = store_experts(self.graph, gate_up, down, routing.count, quantised, self.matrices)
        return self.graph.op(
            stored.kind,
            x,
            self.graph.reshape(routing.scores, -1, routing.count),
            *stored.operands,
            domain=MS,
            k=routing.chosen,
            normalize_routing_weights=int(routing.normalised),
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.0,
            activation_beta=0.0,
            **stored.attributes,
        )

    # Norms -----------------------------------------------------------------------------------

    def rms_norm(self, x: ir.Value, gamma: Float32, eps: float) -> ir.Value:
        """`x * rsqrt(mean(x**2) + eps) * gamma` over the last axis."""
        weight = self.graph.weight("gamma", gamma)
        return self.graph.op("RMSNormalization", x, weight, axis=-1, epsilon=eps)

    def add_rms_norm(
        self, x: ir.Value, residual: ir.Value, gamma: Float32, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """The norm of `x + residual`, and the sum."""
        normed, _, _, total = self.graph.ops(
            "SkipSimplifiedLayerNormalization",
            x,
            residual,
            self.graph.weight("gamma", gamma),
            domain=MS,
            outputs=4,
            epsilon=eps,
        )
        return normed, total

    def gated_rms_norm(
        self, x: ir.Value, gate: ir.Value, gamma: Float32, eps: float, heads: DeltaHeads
    ) -> ir.Value:
        """`rms_norm(x) * silu(gate)` for each head of `len(gamma)` values in the last axis.

        The kernel GatedRMSNorm takes 23 times as long for a chunk of a prompt.
        """
        split = self.graph.reshape(x, 1, -1, heads.value, heads.value_dim)
        normed = self.rms_norm(split, gamma, eps)
        joined = self.graph.reshape(normed, 1, -1, heads.value * heads.value_dim)
        return self.graph.op("Mul", joined, self.silu(gate))

    def layer_norm(self, x: ir.Value, gamma: Float32, beta: Float32, eps: float) -> ir.Value:
        """Layer normalisation over the last axis."""
        scale, bias = self.graph.weight("gamma", gamma), self.graph.weight("beta", beta)
        return self.graph.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=eps)

    # Activations -----------------------------------------------------------------------------

    def silu(self, x: ir.Value) -> ir.Value:
        """`x * sigmoid(x)` in one node."""
        return self.graph.op("QuickGelu", x, domain=MS, alpha=1.0)

    def gelu(self, x: ir.Value, *, tanh: bool) -> ir.Value:
        """GELU, exact or in its tanh form."""
        return self.graph.op("Gelu", x, approximate="tanh" if tanh else "none")

    # Token mixers ----------------------------------------------------------------------------

    def causal_conv(
        self, x: ir.Value, weight: Float32, past: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Depthwise causal convolution with SiLU.

        A multiplication for each tap: the kernel CausalConvWithState takes 6 times as long for a
        chunk of a prompt, 3 times for a step.

        Args:
            x: `[1, T, channels]`.
            weight: `[channels, 1, kernel]`.
            past: the last `kernel - 1` inputs, `[1, kernel - 1, channels]`.

        Returns:
            The output `[1, T, channels]` and the new past.
        """
        op, ints, before = self.graph.op, self.graph.ints, weight.shape[-1] - 1
        window = op("Concat", past, x, axis=1)
        total: ir.Value | None = None
        for tap in range(before + 1):
            shifted = x
            if tap < before:
                shifted = op("Slice", window, ints(tap), ints(tap - before), ints(1))
            taken = np.ascontiguousarray(weight[:, 0, tap])
            product = op("Mul", shifted, self.graph.weight(f"conv.{tap}", taken))
            total = product if total is None else op("Add", total, product)
        assert total is not None
        present = op("Slice", window, ints(-before), ints(2**31 - 1), ints(1))
        return self.silu(total), present

    def unit_heads(
        self, both: ir.Value, heads: DeltaHeads, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """Query and key, each `[1, T, NK * DK]`, every head divided by its length."""
        width = heads.key * heads.key_dim
        split = self.graph.reshape(both, 1, -1, 2 * heads.key, heads.key_dim)
        normed = self._l2_norm(split, heads.key_dim, eps)
        query, key = self.graph.split(self.graph.reshape(normed, 1, -1, 2 * width), width, width)
        return query, key

    def _l2_norm(self, x: ir.Value, width: int, eps: float) -> ir.Value:
        """`x * rsqrt(sum(x**2) + eps)` over the last axis of `width` values.

        The same as an RMS norm with `gamma = width**-0.5` and `eps / width`.
        """
        gamma = self.graph.constant(np.full(width, width**-0.5, np.float32))
        return self.graph.op("RMSNormalization", x, gamma, axis=-1, epsilon=eps / width)

    def decay_and_beta(
        self, both: ir.Value, a_log: Float32, dt_bias: Float32
    ) -> tuple[ir.Value, ir.Value]:
        """`-exp(a_log) * softplus(a + dt_bias)` and `sigmoid(b)`, both `[1, T, NV]`."""
        a, b = self.graph.split(both, len(a_log), len(a_log))
        scale = (-np.exp(a_log.astype(np.float64))).astype(np.float32)
        decay, beta = self.graph.ops(
            "LinearAttentionGate",
            a,
            self.graph.weight("dt_bias", dt_bias),
            self.graph.weight("decay_scale", scale),
            b,
            domain=MS,
            outputs=2,
        )
        return decay, beta

    def gated_delta_rule(
        self, given: DeltaOperands, heads: DeltaHeads
    ) -> tuple[ir.Value, ir.Value]:
        """The gated delta rule over L2-normalised query and key.

        Returns:
            The output `[1, T, NV * DV]` and the new state `[1, NV, DK, DV]`.
        """
        output, present = self.graph.ops(
            "LinearAttention",
            *given,
            domain=MS,
            outputs=2,
            q_num_heads=heads.key,
            kv_num_heads=heads.value,
            update_rule="gated_delta",
            scale=heads.scale,
        )
        return output, present

    def rotated_heads(
        self, joined: ir.Value, norms: HeadNorms, angles: Values, heads: AttentionHeads, rope: Rope
    ) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Per-head norms, then interleaved multimodal rotary embedding of query and key.

        All are `[1, T, heads * HD]`. `angles` are the positions `[3, 1, T]` int64, and tables of
        cosines and sines, `[positions, dim / 2]` each.
        """
        wide, narrow = heads.query * heads.dim, heads.kv * heads.dim
        query, key, value, gate = self.graph.split(joined, wide, narrow, narrow, wide)
        query = self._rotated(query, norms.query, norms.eps, angles, heads.query, rope)
        key = self._rotated(key, norms.key, norms.eps, angles, heads.kv, rope)
        return query, key, value, gate

    def _rotated(
        self, x: ir.Value, gamma: Float32, eps: float, angles: Values, heads: int, rope: Rope
    ) -> ir.Value:
        width = len(gamma)
        split = self.graph.reshape(x, 1, -1, heads, width)
        normed = self.rms_norm(split, gamma, eps)
        return self.graph.op(
            "MRotaryEmbedding",
            self.graph.reshape(normed, 1, -1, heads * width),
            *angles,
            domain=MS,
            mrope_section=list(rope.sections),
            mrope_layout=1,
            num_heads=heads,
            rotary_embedding_dim=rope.dim,
        )

    def patch_rotary(self, x: ir.Value, tables: Values, heads: PatchHeads) -> ir.Value:
        """Rotate every patch by its own angles.

        Args:
            x: `[1, P, heads * head_dim]`.
            tables: cosines and sines of each patch, `[P, head_dim / 2]`.
        """
        return self.graph.op(
            "RotaryEmbedding", x, self.graph.ints(0), *tables, domain=MS, num_heads=heads.count
        )

    def attention(
        self, given: AttentionOperands, heads: AttentionHeads
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Causal grouped-query attention over caches `[1, NKV, C, HD]`, written in place.

        `slots` are `seqlens_k` (`[1]` int32, filled slots after this call, minus one) and
        `total_sequence_length` (scalar int32, the filled slots); behind them those of `FilledRows`
        where one token may be read in another way.
        """
        filled = given.slots[2:]
        if not filled:
            return self._grouped(given, heads)
        with self.graph.branch("one_row") as one:
            one.outputs.extend(one_row(self.graph, given, heads, FilledRows(*filled)))
        with self.graph.branch("rows") as several:
            several.outputs.extend(self._grouped(given, heads))
        output, present_key, present_value = self.graph.ops(
            "If", filled[0], outputs=3, then_branch=one, else_branch=several
        )
        return output, present_key, present_value

    def _grouped(
        self, given: AttentionOperands, heads: AttentionHeads
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        output, present_key, present_value = self.graph.ops(
            "GroupQueryAttention",
            given.query,
            given.key,
            given.value,
            *(given.past or (None, None))[:2],
            *given.slots[:2],
            domain=MS,
            outputs=3,
            num_heads=heads.query,
            kv_num_heads=heads.kv,
            scale=heads.scale,
        )
        return output, present_key, present_value

    def patch_attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: PatchHeads
    ) -> ir.Value:
        """Attention of every patch to every patch, `[1, P, heads * head_dim]`."""
        return self.graph.op(
            "MultiHeadAttention",
            query,
            key,
            value,
            domain=MS,
            num_heads=heads.count,
            scale=heads.scale,
        )
