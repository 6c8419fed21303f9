"""What a graph says of itself in its own metadata; the engine reads nothing else about it."""

from __future__ import annotations

from collections.abc import Sequence

CONTRACT_VERSION = "1"


def graph_metadata(kind: str, in_place: Sequence[str] = ()) -> dict[str, str]:
    """Key-value pairs of the model file.

    `q35chat.in_place` names the `past_*` inputs that share one buffer with their `present_*`.
    """
    return {
        "q35chat.contract": CONTRACT_VERSION,
        "q35chat.graph": kind,
        "q35chat.in_place": ",".join(in_place),
    }
