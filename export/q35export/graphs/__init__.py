"""Whole graphs: inputs, blocks in order, outputs; and what each says of itself in its metadata."""

from __future__ import annotations

from collections.abc import Sequence

CONTRACT_VERSION = "1"


def graph_metadata(
    kind: str, in_place: Sequence[str] = (), may_alias: Sequence[str] = (), part: int = 0
) -> dict[str, str]:
    """Key-value pairs of the model file.

    `q35chat.in_place` names the `past_*` inputs that share one buffer with their `present_*`,
    `q35chat.may_alias` those that can: nothing reads them once their `present_*` is written.
    `q35chat.filled_part` is how many rows a part of `filled_*` inputs has at most.
    """
    parts = {"q35chat.filled_part": str(part)} if part else {}
    aliases = {"q35chat.may_alias": ",".join(may_alias)} if may_alias else {}
    return (
        parts
        | aliases
        | {
            "q35chat.contract": CONTRACT_VERSION,
            "q35chat.graph": kind,
            "q35chat.in_place": ",".join(in_place),
        }
    )
