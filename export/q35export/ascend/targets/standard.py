"""Operators of ONNX opset 14's default domain, and no other: what every 310P graph is made of; and
its projections in int8.

Only operators that MindSpore Lite's ONNX reader knows (`mslite_operators.txt`). Activations are
FP16 or FP32; norms, decays and softmax are computed in FP32. Token mixers are left to the targets
built on this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from q35chat.errors import ExportError, Remedy
from q35export.ascend.ops import ascend_quant, quant_batch_matmul
from q35export.config import Rope
from q35export.graph import Array, Dim, Graph
from q35export.int8_rows import packed, row_codes
from q35export.matrix import Matrix
from q35export.precision import Quantisation
from q35export.targets.base import (
    AttentionHeads,
    AttentionOperands,
    DeltaHeads,
    Float32,
    HeadNorms,
    PatchHeads,
    Routing,
    Values,
)

OPSET = 14
FLOAT, FLOAT16, INT32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32
BLOCKED = np.float32(np.finfo(np.float16).min)  # added to a score that must not count


@cache
def readable_operators() -> frozenset[str]:
    """Operator types that MindSpore Lite's ONNX reader knows."""
    text = resources.files(__package__).joinpath("mslite_operators.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class PrefillTokens:
    """Which tokens of a prefill are real; the padding lies at the end.

    `valid` `[T, 1]` FP32, ones then zeros; `tail` `[K - 1]` int32, where the last inputs of the
    convolution lie once the past ones are put in front. A step of several tokens has no padding and
    `valid` None.
    """

    valid: ir.Value | None
    tail: ir.Value


@dataclass
class StandardTarget:
    """Everything but the token mixers.

    `tokens` None means a graph of one token, `longest` bounds those of one call. `kernel_dtype` is
    that of the delta rule's query, key, value and beta. `patch_mask` `[1, 1, P]` FP32 is added to
    the scores of the vision tower. `steps` are those of a `PrecisionPlan`.
    """

    graph: Graph
    dtype: ir.DataType
    kv_dtype: ir.DataType
    tokens: PrefillTokens | None = None
    patch_mask: ir.Value | None = None
    longest: int = 1
    steps: Mapping[str, float] = field(default_factory=dict)
    kernel_dtype: ClassVar = FLOAT

    def cast(self, x: ir.Value, source: ir.DataType, to: ir.DataType) -> ir.Value:
        """`x` of dtype `source` as `to`; no node when they are equal."""
        return x if source == to else self.graph.op("Cast", x, to=int(to))

    # Projections -----------------------------------------------------------------------------

    def store(self, name: str, weights: Matrix, quantised: Quantisation | None) -> RowMatrix:  # noqa: ARG002
        """Write a matrix that is used more than once; its `multiply` takes `[rows, k]`."""
        return store_rows(self.graph, name, weights, self.dtype)

    def project(
        self,
        x: ir.Value,
        name: str,
        weights: Matrix,
        quantised: Quantisation | None,  # noqa: ARG002
        bias: Float32 | None = None,
    ) -> ir.Value:
        """`x @ weights.T + bias`, the weights transposed in the file or, in int8, as they are."""
        step = self.steps.get(self.graph.scoped(name))
        if step is None:
            stored = store_transposed(self.graph, name, weights, self.dtype)
            product = self.graph.op("MatMul", x, stored)
        else:
            product = self.multiply_codes(x, (1, 1 if self.tokens is None else "T"), name, weights)
        if bias is None:
            return product
        return self.graph.op("Add", product, self._weight(f"{name}.bias", bias))

    def multiply_codes(
        self, x: ir.Value, rows: tuple[Dim, ...], name: str, weights: Matrix
    ) -> ir.Value:
        """`x @ weights.T` in int8, `x` being `[*rows, k]` and `steps` having the matrix."""
        step = self.steps[self.graph.scoped(name)]
        codes = ascend_quant(self.graph, x, self.dtype, step, (*rows, weights.k))
        stored = store_codes(self.graph, name, weights, step)
        product = quant_batch_matmul(self.graph, codes, *stored, (*rows, weights.n))
        return self.cast(product, FLOAT16, self.dtype)

    # Norms -----------------------------------------------------------------------------------

    def experts(
        self,
        x: ir.Value,  # noqa: ARG002
        routing: Routing,
        gate_up: Matrix,  # noqa: ARG002
        down: Matrix,  # noqa: ARG002
        quantised: Quantisation | None,  # noqa: ARG002
    ) -> ir.Value:
        """Refused with ExportError: the 310P's graphs are dense."""
        raise ExportError(
            f"the model has {routing.count} experts a layer, which the NPU's graphs cannot hold:",
            Remedy.TARGET,
            target="cpu",
        )

    def rms_norm(self, x: ir.Value, gamma: Float32, eps: float) -> ir.Value:
        """`x * rsqrt(mean(x**2) + eps) * gamma` over the last axis."""
        return self.cast(self._rms(self._up(x), gamma, eps), FLOAT, self.dtype)

    def add_rms_norm(
        self, x: ir.Value, residual: ir.Value, gamma: Float32, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """The norm of `x + residual`, and the sum."""
        total = self.graph.op("Add", x, residual)
        return self.rms_norm(total, gamma, eps), total

    def gated_rms_norm(
        self, x: ir.Value, gate: ir.Value, gamma: Float32, eps: float, heads: DeltaHeads
    ) -> ir.Value:
        """`rms_norm(x) * silu(gate)`; `x` is `[T, NV, DV]` in the kernel's dtype."""
        wide = self.cast(x, self.kernel_dtype, FLOAT)
        normed = self.cast(self._rms(wide, gamma, eps), FLOAT, self.dtype)
        joined = self.graph.reshape(normed, 1, -1, heads.value * heads.value_dim)
        return self.graph.op("Mul", joined, self.silu(gate))

    def layer_norm(self, x: ir.Value, gamma: Float32, beta: Float32, eps: float) -> ir.Value:
        """Layer normalisation over the last axis."""
        op = self.graph.op
        wide = self._up(x)
        centred = op("Sub", wide, op("ReduceMean", wide, axes=[-1]))
        variance = op("ReduceMean", op("Mul", centred, centred), axes=[-1])
        normed = op("Div", centred, op("Sqrt", op("Add", variance, self.scalar(eps))))
        scaled = op("Mul", normed, self.graph.weight("gamma", gamma))
        return self.cast(op("Add", scaled, self.graph.weight("beta", beta)), FLOAT, self.dtype)

    # Activations -----------------------------------------------------------------------------

    def silu(self, x: ir.Value) -> ir.Value:
        """`x * sigmoid(x)`."""
        return self.graph.op("Mul", x, self.graph.op("Sigmoid", x))

    def gelu(self, x: ir.Value, *, tanh: bool) -> ir.Value:
        """GELU in FP32; the tanh form is written with the sigmoid it equals."""
        op = self.graph.op
        wide = self._up(x)
        if tanh:
            root = (8 / np.pi) ** 0.5
            cubic = op("Mul", op("Mul", wide, wide), self.scalar(root * 0.044715))
            inner = op("Mul", wide, op("Add", cubic, self.scalar(root)))
            result = op("Mul", wide, op("Sigmoid", inner))
        else:
            erf = op("Erf", op("Mul", wide, self.scalar(0.5**0.5)))
            result = op("Mul", wide, op("Add", op("Mul", erf, self.scalar(0.5)), self.scalar(0.5)))
        return self.cast(result, FLOAT, self.dtype)

    # Linear attention ------------------------------------------------------------------------

    def causal_conv(
        self, x: ir.Value, weight: Float32, past: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Depthwise causal convolution with SiLU; states are `[1, channels, kernel - 1]`."""
        channels, _, kernel = weight.shape
        if self.tokens is None:
            return self._conv_step(x, weight.reshape(channels, kernel), past)
        op = self.graph.op
        window = op("Concat", past, op("Transpose", x, perm=[0, 2, 1]), axis=2)
        mixed = op(
            "Conv",
            window,
            self._weight("conv", weight),
            group=channels,
            kernel_shape=[kernel],
            strides=[1],
            dilations=[1],
            pads=[0, 0],
        )
        present = op("Gather", window, self.tokens.tail, axis=2)
        return op("Transpose", self.silu(mixed), perm=[0, 2, 1]), present

    def _conv_step(self, x: ir.Value, weight: Float32, past: ir.Value) -> tuple[ir.Value, ir.Value]:
        op, ints = self.graph.op, self.graph.ints
        channels, kernel = weight.shape
        window = op("Concat", past, self.graph.reshape(x, 1, channels, 1), axis=2)
        products = op("Mul", window, self._weight("conv", weight))
        mixed = self.graph.reshape(op("ReduceSum", products, ints(2), keepdims=0), 1, 1, channels)
        return self.silu(mixed), op("Slice", window, ints(1), ints(kernel), ints(2))

    def unit_heads(
        self, both: ir.Value, heads: DeltaHeads, eps: float
    ) -> tuple[ir.Value, ir.Value]:
        """Query and key `[T, NK, DK]` in the kernel's dtype."""
        op = self.graph.op
        wide = self._up(self.graph.reshape(both, -1, 2 * heads.key, heads.key_dim))
        square = op("ReduceSum", op("Mul", wide, wide), self.graph.ints(-1))
        unit = op("Div", wide, op("Sqrt", op("Add", square, self.scalar(eps))))
        unit = self.cast(unit, FLOAT, self.kernel_dtype)
        query, key = self.graph.ops(
            "Split", unit, self.graph.ints(heads.key, heads.key), outputs=2, axis=1
        )
        return query, key

    def decay_and_beta(
        self, both: ir.Value, a_log: Float32, dt_bias: Float32
    ) -> tuple[ir.Value, ir.Value]:
        """Both `[T, NV]`, decay in FP32, beta in the kernel's dtype; zero for padding, so that
        the state does not move."""
        op, count = self.graph.op, len(a_log)
        a, b = self.graph.split(self.graph.reshape(both, -1, 2 * count), count, count)
        rate = (-np.exp(a_log.astype(np.float64))).astype(np.float32)
        soft = op("Softplus", op("Add", self._up(a), self.graph.weight("dt_bias", dt_bias)))
        decay = op("Mul", soft, self.graph.weight("rate", rate))
        beta = op("Sigmoid", b)
        if self.tokens is None or self.tokens.valid is None:
            return decay, self.cast(beta, self.dtype, self.kernel_dtype)
        wide = op("Mul", self._up(beta), self.tokens.valid)
        return op("Mul", decay, self.tokens.valid), self.cast(wide, FLOAT, self.kernel_dtype)

    # Rotation --------------------------------------------------------------------------------

    def rotated_heads(
        self, joined: ir.Value, norms: HeadNorms, angles: Values, heads: AttentionHeads, rope: Rope
    ) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Query `[1, T, NH, HD]` and key `[1, T, NKV, HD]`, normed and rotated together.

        `angles` are cosines and signed sines `[1, T, 1, HD]`, one and zero where nothing rotates.
        """
        graph, both = self.graph, heads.query + heads.kv
        widths = (both * heads.dim, heads.kv * heads.dim, heads.query * heads.dim)
        front, value, gate = graph.split(joined, *widths)
        gammas = [np.tile(norms.query, (heads.query, 1)), np.tile(norms.key, (heads.kv, 1))]
        split = graph.reshape(front, 1, -1, both, heads.dim)
        normed = self.rms_norm(split, np.concatenate(gammas), norms.eps)
        rotated = self._rotate(normed, heads.dim, rope.dim // 2, angles)
        counts = graph.ints(heads.query, heads.kv)
        query, key = graph.ops("Split", rotated, counts, outputs=2, axis=2)
        return query, key, value, gate

    def patch_rotary(self, x: ir.Value, tables: Values, heads: PatchHeads) -> ir.Value:
        """`[P, heads, head_dim]`; tables are cosines and signed sines `[P, 1, head_dim]`."""
        split = self.graph.reshape(x, -1, heads.count, heads.dim)
        return self._rotate(split, heads.dim, heads.dim // 2, tables)

    def _rotate(self, x: ir.Value, width: int, half: int, angles: Values) -> ir.Value:
        op = self.graph.op
        cos, sin = angles
        rest = [width - 2 * half] if width > 2 * half else []
        first, second, *still = self.graph.split(x, half, half, *rest)
        swapped = op("Concat", second, first, *still, axis=-1)
        return op("Add", op("Mul", x, cos), op("Mul", swapped, sin))

    # Attention -------------------------------------------------------------------------------

    def attention(
        self, given: AttentionOperands, heads: AttentionHeads
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Causal attention, `[1, T, NH * HD]`, and the caches `[1, NKV, S, HD]` in `kv_dtype`.

        Query is `[1, T, NH, HD]`, key `[1, T, NKV, HD]`, value `[1, T, NKV * HD]`. `slots` is
        (mask,) for a cache that grows, or (mask, index, fresh) for one of C slots: mask
        `[1, 1, T, S]` FP32 is added to the scores; for each slot, index `[C]` int32 is the new row
        it would take and fresh `[1, NKV, C, HD]` bool whether it takes it.
        """
        query, key, value, past, slots = given
        split = self.graph.reshape(value, 1, -1, heads.kv, heads.dim)
        caches = []
        for number, rows in enumerate((key, split)):
            turned = self.graph.op("Transpose", rows, perm=[0, 2, 1, 3])
            turned = self.cast(turned, self.dtype, self.kv_dtype)
            caches.append(self._placed(turned, None if past is None else past[number], slots))
        wide = [self.cast(cache, self.kv_dtype, self.dtype) for cache in caches]
        return self._softmax_mix(query, wide[0], wide[1], slots[0], heads), caches[0], caches[1]

    def _placed(self, rows: ir.Value, past: ir.Value | None, slots: Values) -> ir.Value:
        op = self.graph.op
        if past is None:
            return rows
        if len(slots) == 1:
            return op("Concat", past, rows, axis=2)
        _, index, fresh = slots
        return op("Where", fresh, op("Gather", rows, index, axis=2), past)

    def _softmax_mix(
        self,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        mask: ir.Value,
        heads: AttentionHeads,
    ) -> ir.Value:
        """The query heads of a group multiply one view of their keys; nothing is widened."""
        op, graph = self.graph.op, self.graph
        each = heads.query // heads.kv
        scaled = op("Mul", query, self.scalar(heads.scale, self.dtype))
        grouped = graph.reshape(scaled, -1, heads.kv, each, heads.dim)
        scores = op(
            "MatMul",
            op("Transpose", grouped, perm=[1, 2, 0, 3]),
            op("Transpose", key, perm=[1, 0, 3, 2]),
        )
        shares = self.softmax(scores, mask)
        mixed = op("MatMul", shares, graph.reshape(value, heads.kv, 1, -1, heads.dim))
        together = op("Transpose", mixed, perm=[2, 0, 1, 3])
        return graph.reshape(together, 1, -1, heads.query * heads.dim)

    # Vision ----------------------------------------------------------------------------------

    def patch_attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: PatchHeads
    ) -> ir.Value:
        """Attention of every patch to every patch that is no padding: `[1, P, hidden]`."""
        op, graph = self.graph.op, self.graph
        value = graph.reshape(value, -1, heads.count, heads.dim)
        scores = op(
            "MatMul",
            op("Mul", op("Transpose", query, perm=[1, 0, 2]), self.scalar(heads.scale, self.dtype)),
            op("Transpose", key, perm=[1, 2, 0]),
        )
        shares = self.softmax(scores, self.patch_mask)
        mixed = op("MatMul", shares, op("Transpose", value, perm=[1, 0, 2]))
        width = heads.count * heads.dim
        return graph.reshape(op("Transpose", mixed, perm=[1, 0, 2]), 1, -1, width)

    # Parts -----------------------------------------------------------------------------------

    def softmax(self, scores: ir.Value, mask: ir.Value | None) -> ir.Value:
        """Shares over the last axis, computed in FP32; `mask` FP32 is added first."""
        wide = self._up(scores)
        if mask is not None:
            wide = self.graph.op("Add", wide, mask)
        return self.cast(self.graph.op("Softmax", wide, axis=-1), FLOAT, self.dtype)

    def scalar(self, value: float, dtype: ir.DataType = FLOAT) -> ir.Value:
        """A constant of one element."""
        return self.graph.constant(np.array([value], dtype.numpy()))

    def _up(self, x: ir.Value) -> ir.Value:
        return self.cast(x, self.dtype, FLOAT)

    def _rms(self, wide: ir.Value, gamma: Float32, eps: float) -> ir.Value:
        op = self.graph.op
        mean = op("ReduceMean", op("Mul", wide, wide), axes=[-1])
        normed = op("Div", wide, op("Sqrt", op("Add", mean, self.scalar(eps))))
        return op("Mul", normed, self.graph.weight("gamma", gamma))

    def _weight(self, name: str, array: Float32) -> ir.Value:
        return self.graph.weight(name, array.astype(self.dtype.numpy()))


@dataclass(frozen=True, slots=True)
class RowMatrix:
    """`[n, k]`, looked up in and multiplied by."""

    graph: Graph
    value: ir.Value

    def multiply(self, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
        """`x @ w.T + bias` for `x` `[rows, k]`."""
        return self.graph.op("Gemm", x, self.value, bias, transB=1)

    def rows(self, ids: ir.Value) -> ir.Value:
        """`w[ids]`."""
        return self.graph.op("Gather", self.value, ids, axis=0)


def store_rows(graph: Graph, name: str, weights: Matrix, dtype: ir.DataType) -> RowMatrix:
    """Write `[n, k]` piece by piece; ExportError for a weight beyond the dtype's range."""

    def pieces() -> Iterator[Array]:
        for start, stop in weights.spans():
            yield _converted(name, weights.rows(start, stop), dtype)

    return RowMatrix(graph, graph.streamed(name, (weights.n, weights.k), dtype, pieces))


def store_transposed(graph: Graph, name: str, weights: Matrix, dtype: ir.DataType) -> ir.Value:
    """Write `[k, n]`; ExportError for a weight beyond the dtype's range."""

    def pieces() -> Iterator[Array]:
        whole = np.empty((weights.k, weights.n), dtype.numpy())
        for start, stop in weights.spans():
            whole[:, start:stop] = _converted(name, weights.rows(start, stop), dtype).T
        yield whole

    return graph.streamed(name, (weights.k, weights.n), dtype, pieces)


def store_codes(graph: Graph, name: str, weights: Matrix, step: float) -> tuple[ir.Value, ir.Value]:
    """Write codes `[n, k]` and what a product of each row's is worth, `[n]` (`int8_rows`)."""
    found: list[Array] = []

    def pieces() -> Iterator[Array]:
        for start, stop in weights.spans():
            codes, scales = row_codes(weights.rows(start, stop), step)
            found.append(packed(scales))
            yield codes

    int8, int64 = ir.DataType.INT8, ir.DataType.INT64
    codes = graph.streamed(name, (weights.n, weights.k), int8, pieces)
    scales = graph.streamed(f"{name}.scales", (weights.n,), int64, lambda: iter(found))
    return codes, scales


def _converted(name: str, values: Array, dtype: ir.DataType) -> Array:
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=dtype.numpy())
    if not np.isfinite(converted).all():
        raise ExportError(
            f"a weight of {name} is {np.abs(values).max():.4g}, beyond the range of FP16",
            Remedy.EXPORT_FP32,
        )
    return converted
