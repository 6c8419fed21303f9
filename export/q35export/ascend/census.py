"""How many nodes a graph has, by operator, in a layer of each kind and outside of the layers.

On an NPU every node that is not fused costs a launch: this is the number to keep small.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

_LAYER = re.compile(r"(layer|block)_\d+/")
_FULL = frozenset({"IncreFlashAttention", "Softmax"})
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Census:
    """Nodes by operator: of the whole graph, of one layer of each kind, of everything outside.

    A Custom node counts under its kernel's name. `layers` maps "linear", "full" or "block" to how
    many of them there are and the counts of the last one: the first also makes what all share.
    """

    total: Counts
    layers: Mapping[str, tuple[int, Counts]]
    outside: Counts

    def lines(self, name: str) -> list[str]:
        """The whole graph, a layer of each kind, and the rest, operators by count."""
        found = [f"{name}: {sum(self.total.values())} nodes"]
        found += [
            f"{name}: {number} {kind} layers of {_listed(counts)}"
            for kind, (number, counts) in self.layers.items()
        ]
        return [*found, f"{name}: outside of layers {_listed(self.outside)}"]


def census(model: ir.Model) -> Census:
    """Count the nodes of a graph; layers are told by the scope in a node's name."""
    scopes: dict[str, Counter[str]] = {}
    for node in model.graph:
        found = _LAYER.match(node.name or "")
        scopes.setdefault(found[0] if found else "", Counter())[_kind(node)] += 1
    layers: dict[str, tuple[int, Counts]] = {}
    for scope, counts in scopes.items():
        if not scope:
            continue
        kind = "block"
        if scope.startswith("layer"):
            kind = "full" if _FULL & counts.keys() else "linear"
        number, _ = layers.get(kind, (0, counts))
        layers[kind] = (number + 1, counts)
    total = sum(scopes.values(), Counter())
    return Census(total, layers, scopes.get("", Counter()))


def _kind(node: ir.Node) -> str:
    kind = node.attributes.get("type")
    return kind.as_string() if node.op_type == "Custom" and kind is not None else node.op_type


def _listed(counts: Counts) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count} {kind}" for kind, count in ordered)
    return f"{sum(counts.values())} nodes ({listed})"
