"""How many bytes a decode step has to read: the weights of its graph, its states, the KV in use.

Reads the ONNX file's structure, never its weights. Knows no clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from q35chat.engine.contract import StatePair

# Of a table that these look up, a step reads one row.
_LOOKUPS = frozenset({"Gather", "GatherBlockQuantized", "MRotaryEmbedding", "RotaryEmbedding"})
# Of what these hold for each expert, a step reads the experts that its token takes.
_EXPERTS = frozenset({"MoE", "QMoE"})

Region = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read by a step: `weights` and `states` always, `slot` for each token of context."""

    weights: int
    states: int
    slot: int

    def at(self, context: int) -> int:
        """Bytes of a step behind `context` tokens, its own KV row included."""
        return self.weights + self.states + self.slot * (context + 1)


def traffic(graph: Path, pairs: Iterable[StatePair]) -> Traffic:
    """What a step over the ONNX file `graph` with the states `pairs` reads."""
    states = slot = 0
    for pair in pairs:
        if pair.cache:
            others = (*pair.shape[:-2], pair.shape[-1])
            slot += math.prod(others) * pair.dtype.itemsize
        else:
            states += math.prod(pair.shape) * pair.dtype.itemsize
    return Traffic(weight_bytes(graph), states, slot)


def weight_bytes(path: Path) -> int:
    """Bytes of weights that one step reads; a part of the file that two tensors share counts once.

    Tables that are only looked up count with one row, experts with the share that a token takes.
    """
    graph = onnx.load(str(path), load_external_data=False).graph
    users, chosen = _users(graph), _chosen(graph)
    whole: set[Region] = set()
    rows: dict[Region, int] = {}
    for tensor in graph.initializer:
        if not (used := users[tensor.name]):
            continue
        region, length = _region(tensor)
        if tensor.name in chosen:
            rows[region] = length * chosen[tensor.name] // tensor.dims[0]
        elif used <= _LOOKUPS:
            rows[region] = length // max(1, tensor.dims[0] if tensor.dims else 1)
        else:
            whole.add(region)
    looked_up = sum(row for region, row in rows.items() if region not in whole)
    return sum(length for _, _, length in whole) + looked_up


def _users(graph: onnx.GraphProto) -> Mapping[str, set[str]]:
    """The operators that take each tensor, by its name."""
    users: dict[str, set[str]] = defaultdict(set)
    for node in _nodes(graph):
        for name in node.input:
            users[name].add(node.op_type)
    return users


def _chosen(graph: onnx.GraphProto) -> Mapping[str, int]:
    """How many of a tensor's experts a token goes through, by the name of what only experts use."""
    return {
        name: attribute.i
        for node in _nodes(graph)
        if node.op_type in _EXPERTS
        for attribute in node.attribute
        if attribute.name == "k"
        for name in node.input
    }


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _region(tensor: onnx.TensorProto) -> tuple[Region, int]:
    """Where a tensor's bytes lie: place, offset and length; and the length."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        told = {entry.key: entry.value for entry in tensor.external_data}
        length = int(told.get("length", 0))
        return (told["location"], int(told.get("offset", 0)), length), length
    length = len(tensor.raw_data) or tensor.ByteSize()
    return (f"inline {tensor.name}", 0, length), length
