"""The six kernels in numpy, from their definitions: operands checked, FP16 at the boundary.

Inside, a kernel computes in FP32, with codes in int8 exactly; what it returns is rounded to FP16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from q35chat.errors import ExportError
from q35export.ascend.reference.contracts import CustomNode
from q35export.graph import Array

Kernel = Callable[[CustomNode, Sequence[Array]], tuple[Array, ...]]
HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
INT8, BOOL = np.dtype(np.int8), np.dtype(np.bool_)
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
MOST_TOKENS = 8  # of the recurrent rule
_LEFT_OUT = (1 << 13) - 1  # of a scale's 32 bits
_WIDEST = 65535
_PIECE_VALUES = 1 << 22


def run_kernel(
    node: CustomNode, operands: Sequence[Array], *, rounds_inputs: bool = True
) -> tuple[Array, ...]:
    """Run a checked node; ExportError for operands that its kernel would refuse or misread.

    Without `rounds_inputs` an input of an int8 multiplication is divided by its step and not
    rounded: what is left of a graph then is its weights.
    """
    if not rounds_inputs and node.kind in _UNROUNDED:
        return _UNROUNDED[node.kind](node, operands)
    return KERNELS[node.kind](node, operands)


def chunk_gated_delta_rule(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """All tokens, one after the other."""
    *given, lengths, decay = operands
    tokens = _check_delta_operands(node, *given, decay)
    _expect(node, "actual_seq_lengths", lengths, INT32, (1,))
    if int(lengths[0]) != tokens:
        raise ExportError(f"{_where(node)}: {tokens} tokens, actual_seq_lengths {lengths[0]}")
    return delta_rule((*given, decay), node.attributes["scale_value"])


def recurrent_gated_delta_rule(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """A few tokens of one sequence. The state after each is put into the slot that its index names;
    the first is read from that of the last token that was accepted of the call before, by the
    indices of this one: beyond them the kernel would read another slot without a word."""
    *given, lengths, index, decay, accepted = operands
    state = given[-1]
    slots = state.shape[0] if state.ndim == 4 else 1
    tokens = _check_delta_operands(node, *given, decay, slots=slots)
    _expect(node, "ssm_state_indices", index, INT32, (tokens,))
    for name, array, least, most in (
        ("actual_seq_lengths", lengths, tokens, min(tokens, MOST_TOKENS)),
        ("num_accepted_tokens", accepted, 1, tokens),
    ):
        _expect(node, name, array, INT32, (1,))
        if not least <= int(array[0]) <= most:
            raise ExportError(
                f"{_where(node)}: {name} is {array[0]} for {tokens} tokens, of which it takes 1 to "
                f"{MOST_TOKENS}"
            )
    if not ((index >= 0) & (index < slots)).all():
        raise ExportError(f"{_where(node)}: ssm_state_indices {index} of {slots} slots")
    _, heads, value_dim, key_dim = state.shape
    shape = f"3,-1,{heads},{value_dim},4,-1,{heads},{value_dim},{key_dim},"
    if node.attributes["outputs_shape"] != shape:
        raise ExportError(
            f"{_where(node)}: outputs_shape is {node.attributes['outputs_shape']!r}, the operands "
            f"give {shape!r}"
        )
    first = state[index[accepted[0] - 1]][None]
    out, states = np.empty(given[2].shape, HALF), state.copy()
    scale = node.attributes["scale_value"]
    for token, (row, memory) in enumerate(_tokens((*given[:-1], first, decay), scale)):
        out[token], states[index[token]] = row, memory
    return out, states


def scatter(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """One token's rows into the slot that `indices` names."""
    var, indices, updates = operands
    if var.ndim != 4 or var.shape[0] != 1:
        raise ExportError(f"{_where(node)}: var must be [1, NKV, C, HD], found {list(var.shape)}")
    _, heads, capacity, width = var.shape
    _expect(node, "var", var, HALF, var.shape)
    _expect(node, "indices", indices, INT64, (1,))
    _expect(node, "updates", updates, HALF, (1, heads, 1, width))
    slot = int(indices[0])
    if not 0 <= slot < capacity:
        raise ExportError(f"{_where(node)}: slot {slot} of a cache of {capacity}")
    return (scattered(var, slot, updates),)


def scattered(var: Array, slot: int, updates: Array) -> Array:
    """The cache `[1, NKV, C, HD]` with `updates` `[1, NKV, 1, HD]` at `slot`, a copy."""
    written = var.copy()
    written[:, :, slot] = updates[:, :, 0]
    return written


def incre_flash_attention(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """One token's query against every slot that is not blocked."""
    query, key, value, *mask = operands
    heads, kv_heads = (node.attributes[name] for name in ("num_heads", "num_key_value_heads"))
    width, capacity = query.shape[-1], key.shape[2] if key.ndim == 4 else 0
    blocked = mask[0] if mask else np.zeros((1, 1, 1, capacity), np.bool_)
    _expect(node, "query", query, HALF, (1, heads, 1, width))
    for name, array in (("key", key), ("value", value)):
        _expect(node, name, array, HALF, (1, kv_heads, capacity, width))
    if kv_heads != heads:
        raise ExportError(
            f"{_where(node)}: the 310P takes as many key-value heads as heads, found {kv_heads} "
            f"and {heads}"
        )
    _scale(node, width)
    _expect(node, "atten_mask", blocked, BOOL, (1, 1, 1, capacity))
    if blocked.all():
        raise ExportError(f"{_where(node)}: every slot is blocked")
    return (attention(query, key, value, blocked, node.attributes["scale_value"]),)


def attention(query: Array, key: Array, value: Array, blocked: Array, scale: float) -> Array:
    """One token's attention `[1, NH, 1, HD]` FP16; query `[1, NH, 1, HD]`, key and value
    `[1, NH, C, HD]`, `blocked` `[1, 1, 1, C]` bool."""
    scores = np.einsum("nd,ncd->nc", query[0, :, 0].astype(SINGLE), key[0].astype(SINGLE)) * scale
    scores[:, blocked[0, 0, 0]] = -np.inf
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    mixed = np.einsum("nc,ncd->nd", scores, value[0].astype(SINGLE))
    out: Array = mixed / scores.sum(axis=1, keepdims=True)
    return out[None, :, None].astype(HALF)


def ascend_quant(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """`x * scale` rounded to the nearest code, ties to even, no code past the ends of int8."""
    (scaled,) = _scaled(node, operands)
    return (np.clip(np.rint(scaled), -128, 127).astype(INT8),)


def quant_batch_matmul(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The product of codes, each column times the float whose upper 19 bits `scale` holds."""
    return _product_of_codes(node, operands, INT8)


KERNELS: Mapping[str, Kernel] = {
    "ChunkGatedDeltaRule": chunk_gated_delta_rule,
    "RecurrentGatedDeltaRule": recurrent_gated_delta_rule,
    "RecurrentGatedDeltaRule310P": recurrent_gated_delta_rule,
    "Scatter": scatter,
    "IncreFlashAttention": incre_flash_attention,
    "AscendQuant": ascend_quant,
    "QuantBatchMatmul": quant_batch_matmul,
}


def _scaled(node: CustomNode, operands: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = operands
    told, factor = node.attributes["src_t"], node.attributes["scale"]
    if x.dtype != {10: HALF, 1: SINGLE}.get(told):
        raise ExportError(f"{_where(node)}: src_t is {told}, x is {x.dtype}")
    if not 0 < factor < np.inf:
        raise ExportError(f"{_where(node)}: scale must be positive, found {factor}")
    return (x.astype(SINGLE) * np.float32(factor),)


def _product_of_codes(
    node: CustomNode, operands: Sequence[Array], dtype: np.dtype[Any]
) -> tuple[Array, ...]:
    x, weights, scales = operands
    count, width = weights.shape if weights.ndim == 2 else (0, 0)
    _expect(node, "x2", weights, INT8, (count, width))
    _expect(node, "x1", x, dtype, (*x.shape[:-1], width))
    _expect(node, "scale", scales, INT64, (count,))
    if width > _WIDEST:
        raise ExportError(f"{_where(node)}: rows of {width}, the kernel takes {_WIDEST}")
    if (scales < 0).any() or (scales >> 32).any() or (scales & _LEFT_OUT).any():
        raise ExportError(f"{_where(node)}: a scale is no float of 19 bits in the lower half of 64")
    rows = x.reshape(-1, width).astype(np.float64)
    sums = np.empty((len(rows), count))
    some = max(1, _PIECE_VALUES // width)
    for start in range(0, count, some):
        piece = slice(start, start + some)
        sums[:, piece] = rows @ weights[piece].astype(np.float64).T
    worth = scales.astype(np.uint32).view(SINGLE)
    return ((sums.astype(SINGLE) * worth).astype(HALF).reshape(*x.shape[:-1], count),)


_UNROUNDED: Mapping[str, Kernel] = {
    "AscendQuant": _scaled,
    "QuantBatchMatmul": lambda node, operands: _product_of_codes(node, operands, SINGLE),
}


def _check_delta_operands(node: CustomNode, *operands: Array, slots: int = 1) -> int:
    """Check the operands of `delta_rule`, of `slots` states; the number of tokens."""
    query, key, value, beta, state, decay = operands
    if query.ndim != 3 or value.ndim != 3:
        raise ExportError(
            f"{_where(node)}: query and value must be flat [T, heads, dim], found "
            f"{list(query.shape)} and {list(value.shape)}"
        )
    tokens, key_heads, key_dim = (int(axis) for axis in query.shape)
    heads, value_dim = value.shape[1:]
    _expect(node, "query", query, HALF, query.shape)
    _expect(node, "key", key, HALF, query.shape)
    _expect(node, "value", value, HALF, (tokens, heads, value_dim))
    _expect(node, "beta", beta, HALF, (tokens, heads))
    _expect(node, "state", state, HALF, (slots, heads, value_dim, key_dim))
    _expect(node, "g", decay, SINGLE, (tokens, heads))
    if heads % key_heads:
        raise ExportError(f"{_where(node)}: {heads} value heads over {key_heads} key heads")
    _scale(node, key_dim)
    if (decay > 0).any():
        raise ExportError(f"{_where(node)}: a decay above zero; g is the logarithm of a decay")
    return tokens


def delta_rule(operands: Iterable[Array], scale: float) -> tuple[Array, Array]:
    """The gated delta rule, token by token: forget, recall, correct, read.

    For each value head the state `S` `[DV, DK]` decays by `exp(decay)`, what the key recalls is
    taken from the value, and the rest, times beta, is written back: `S += beta (v - S k) k^T`. The
    output is `S q * scale`. Value head `h` reads key head `h // (NV / NK)`. The operands are query,
    key `[T, NK, DK]`, value `[T, NV, DV]`, beta `[T, NV]`, state `[1, NV, DV, DK]` and decay
    `[T, NV]`; output and state are FP16.
    """
    given = tuple(operands)
    out, memory = np.empty(given[2].shape, SINGLE), given[4][0].astype(SINGLE)
    for token, (row, after) in enumerate(_tokens(given, scale)):
        out[token], memory = row, after
    return out.astype(HALF), memory[None].astype(HALF)


def _tokens(operands: Iterable[Array], scale: float) -> Iterator[tuple[Array, Array]]:
    """What comes out `[NV, DV]` of each token, and the state `[NV, DV, DK]` after it, FP32."""
    query, key, value, beta, state, decay = operands
    heads = value.shape[1]
    shared = np.arange(heads) // (heads // key.shape[1])
    queries = query.astype(SINGLE)[:, shared] * np.float32(scale)
    keys, values = key.astype(SINGLE)[:, shared], value.astype(SINGLE)
    kept, rates = np.exp(decay), beta.astype(SINGLE)
    memory = state[0].astype(SINGLE)
    for token in range(len(value)):
        memory = memory * kept[token, :, None, None]
        recalled = (memory @ keys[token, :, :, None])[..., 0]
        error = (values[token] - recalled) * rates[token, :, None]
        memory += error[:, :, None] * keys[token, :, None, :]
        yield (memory @ queries[token, :, :, None])[..., 0], memory


def _expect(
    node: CustomNode, name: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise ExportError(
            f"{_where(node)}: {name} must be {dtype} {list(shape)}, found {array.dtype} "
            f"{list(array.shape)}"
        )


def _scale(node: CustomNode, width: int) -> None:
    scale = node.attributes["scale_value"]
    if not math.isclose(scale, width**-0.5, rel_tol=1e-6):
        raise ExportError(
            f"{_where(node)}: scale_value is {scale:.7g}, heads of {width} need {width**-0.5:.7g}"
        )


def _where(node: CustomNode) -> str:
    return f"node {node.name} ({node.kind})"
