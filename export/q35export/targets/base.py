"""What the blocks ask of a target: one protocol, answered once for each place a graph runs.

Hidden activations are `[1, T, width]`. Values of a kind named "opaque" below come from one method
of a target and go into another of the same target; blocks only carry them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.config import Rope
from q35export.matrix import Matrix
from q35export.precision import Quantisation

Float32 = npt.NDArray[np.float32]
Values = tuple[ir.Value, ...]


@dataclass(frozen=True, slots=True)
class DeltaHeads:
    """Heads of a linear-attention layer: key (and query) and value heads with their widths."""

    key: int
    value: int
    key_dim: int
    value_dim: int

    @property
    def scale(self) -> float:
        """What a query is multiplied by."""
        return float(self.key_dim**-0.5)


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """Heads of a full-attention layer: query heads, key-value heads, width."""

    query: int
    kv: int
    dim: int

    @property
    def scale(self) -> float:
        """What a score is multiplied by."""
        return float(self.dim**-0.5)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms over a head of the query and of the key, `[HD]` each."""

    query: Float32
    key: Float32
    eps: float


@dataclass(frozen=True, slots=True)
class PatchHeads:
    """Heads of the vision tower: how many and how wide."""

    count: int
    dim: int

    @property
    def scale(self) -> float:
        """What a score is multiplied by."""
        return float(self.dim**-0.5)


@dataclass(frozen=True, slots=True)
class Routing:
    """Which experts a token takes: `scores` `[1, T, E]` before their softmax, of which the `chosen`
    largest count; with `normalised` their weights sum to one."""

    scores: ir.Value
    count: int
    chosen: int
    normalised: bool


class DeltaOperands(NamedTuple):
    """What the gated delta rule works on: `value` `[1, T, NV * DV]`; query and key from
    `unit_heads`, decay and beta from `decay_and_beta`, and the state `past`, all opaque."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    past: ir.Value
    decay: ir.Value
    beta: ir.Value


class AttentionOperands(NamedTuple):
    """What attention works on: `value` `[1, T, NKV * HD]`; query and key from `rotated_heads`, the
    key and value caches, None for empty ones, behind them what else the target's graphs have of
    them, and `slots`, where the tokens lie, as they compute it, all opaque."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    past: Values | None
    slots: Values


class StoredMatrix(Protocol):
    """`[n, k]` weights that are in the file once."""

    def multiply(self, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        """`x @ w.T + bias`."""

    def rows(self, ids: ir.Value) -> ir.Value:
        """`w[ids]`."""


class Target(Protocol):
    """Adds one target's nodes to a graph."""

    def store(self, name: str, weights: Matrix, quantised: Quantisation | None) -> StoredMatrix:
        """Write a matrix that is used more than once."""

    def project(
        self,
        x: ir.Value,
        name: str,
        weights: Matrix,
        quantised: Quantisation | None,
        bias: Float32 | None = None,
    ) -> ir.Value:
        """`x @ weights.T + bias`; a target that does not quantise ignores `quantised`."""

    def experts(
        self,
        x: ir.Value,
        routing: Routing,
        gate_up: Matrix,
        down: Matrix,
        quantised: Quantisation | None,
    ) -> ir.Value:
        """The weighted sum of `down(silu(gate(x)) * up(x))` over the experts of each token.

        `gate_up` is `[E * 2I, H]`, the rows of gate and up in turn, `down` `[E * H, I]`.
        """

    def rms_norm(self, x: ir.Value, gamma: Float32, eps: float) -> ir.Value:
        """`x * rsqrt(mean(x**2) + eps) * gamma` over the last axis."""

    def add_rms_norm(
        self, x: ir.Value, residual: ir.Value, gamma: Float32, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """The norm of `x + residual`, and the sum."""

    def gated_rms_norm(
        self, x: ir.Value, gate: ir.Value, gamma: Float32, eps: float, heads: DeltaHeads
    ) -> ir.Value:
        """`rms_norm(x) * silu(gate)` for each head of `len(gamma)` values; `x` is opaque, from
        `gated_delta_rule`."""

    def layer_norm(self, x: ir.Value, gamma: Float32, beta: Float32, eps: float) -> ir.Value:
        """Layer normalisation over the last axis."""

    def silu(self, x: ir.Value) -> ir.Value:
        """`x * sigmoid(x)`."""

    def gelu(self, x: ir.Value, *, tanh: bool) -> ir.Value:
        """GELU, exact or in its tanh form."""

    def causal_conv(
        self, x: ir.Value, weight: Float32, past: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Depthwise causal convolution with SiLU; `weight` is `[channels, 1, kernel]`, `past`
        and the second result are opaque."""

    def unit_heads(
        self, both: ir.Value, heads: DeltaHeads, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """Query and key of `[1, T, 2 * NK * DK]`, each head divided by its length; opaque."""

    def decay_and_beta(
        self, both: ir.Value, a_log: Float32, dt_bias: Float32
    ) -> tuple[ir.Value, ir.Value]:
        """`-exp(a_log) * softplus(a + dt_bias)` and `sigmoid(b)` of a and b `[1, T, 2 * NV]`;
        opaque."""

    def gated_delta_rule(
        self, given: DeltaOperands, heads: DeltaHeads
    ) -> tuple[ir.Value, ir.Value]:
        """The gated delta rule: opaque output and opaque new state."""

    def rotated_heads(
        self, joined: ir.Value, norms: HeadNorms, angles: Values, heads: AttentionHeads, rope: Rope
    ) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Query, key, value and gate of `[1, T, (2 NH + 2 NKV) * HD]`, in which they lie so.

        Each head of query and key is RMS-normed, then its first `rope.dim` values are rotated.
        Value `[1, T, NKV * HD]` and gate `[1, T, NH * HD]` are as they were; `angles`, query and
        key are opaque.
        """

    def attention(
        self, given: AttentionOperands, heads: AttentionHeads
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Causal grouped-query attention, `[1, T, NH * HD]`, and the new key and value caches."""

    def patch_rotary(self, x: ir.Value, tables: Values, heads: PatchHeads) -> ir.Value:
        """Every patch of `[1, P, heads * dim]` rotated by its own angles; opaque result, as are
        the `tables` of angles."""

    def patch_attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: PatchHeads
    ) -> ir.Value:
        """Attention of every patch to every patch, `[1, P, heads * dim]`; query and key are
        opaque, from `patch_rotary`."""
