"""One sequence over exported 310P graphs, fed by hand: what a runtime must do, without the engine.

Pads to gears, counts tokens, hands states from prefill to decode. Everything it must know of the
graphs it reads from their inputs and metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from q35chat.errors import CapacityError, Remedy
from q35chat.vision.geometry import graph_inputs
from q35export.ascend.reference.contracts import TensorInfo
from q35export.ascend.reference.executor import GraphExecutor
from q35export.graph import Array

STATES = ("conv_states", "recurrent_states", "kv_cache")


@dataclass
class GraphChat:
    """`graphs` has "prefill" and "decode".

    `length` tokens have been seen; `delta` is the mRoPE offset of new ones.
    """

    graphs: Mapping[str, GraphExecutor]
    length: int = 0
    delta: int = 0
    states: dict[str, Array] = field(default_factory=dict)

    @property
    def capacity(self) -> int | None:
        """KV slots; None for a cache that grows."""
        slots = _info(self.graphs["decode"], "past_kv_cache").shape[-2]
        return slots if isinstance(slots, int) else None

    def prefill(
        self,
        ids: Sequence[int],
        positions: Array | None = None,
        images: Array | None = None,
        gear: int | None = None,
    ) -> Array:
        """Feed `ids`, padded to `gear`; the last token's logits `[V]` in FP32.

        `positions` `[3, tokens]` are the mRoPE ones, none means text; `images` are the rows of the
        picture tokens among `ids`. Raises CapacityError.
        """
        graph, count, width = self.graphs["prefill"], len(ids), gear or len(ids)
        self._check_room(count)
        rows = np.tile(np.arange(self.length, self.length + width), (4, 1))
        rows[1:] += self.delta
        if positions is not None:
            rows[1:, :count] = positions
        padded = np.zeros((1, width), np.int32)
        padded[0, :count] = ids
        embeds = _info(graph, "image_embeds")
        if images is None:
            images = np.zeros((1, int(embeds.shape[1])))
        feeds: dict[str, Array] = {
            "input_ids": padded,
            "attention_mask": (np.arange(width) < count).astype(np.int32)[None],
            "position_ids": rows[:, None].astype(np.int32),
            "image_embeds": images.astype(embeds.dtype),
        }
        if any(info.name == "past_len" for info in graph.inputs):
            feeds |= self._pasts(graph)
            feeds["past_len"] = np.array([self.length], np.int32)
        logits: Array = self._run(graph, feeds, count)[-1]
        if self.capacity is None:
            self.states["kv_cache"] = self.states["kv_cache"][..., : self.length, :]
        return logits

    def step(self, token: int) -> Array:
        """Feed one token to the decode graph; its logits `[V]`. Raises CapacityError."""
        logits: Array = self._decode([token])[0]
        return logits

    def steps(self, tokens: Sequence[int]) -> Array:
        """Feed several tokens to the decode graph at once; the logits `[T, V]` after each. Raises
        CapacityError."""
        return self._decode(tokens)

    def layer_states(self, layer_types: Sequence[str]) -> dict[str, Array]:
        """The states by layer, named `conv_0`, `recurrent_0`, `key_3`, `value_3`, each with its
        batch axis; of a cache only the slots in use."""
        convs, recurrents, caches = (iter(self.states[name]) for name in STATES)
        named: dict[str, Array] = {}
        for index, kind in enumerate(layer_types):
            if kind == "linear_attention":
                named |= {f"conv_{index}": next(convs), f"recurrent_{index}": next(recurrents)}
            else:
                key, value = (next(caches)[..., : self.length, :] for _ in range(2))
                named |= {f"key_{index}": key, f"value_{index}": value}
        return named

    def _decode(self, tokens: Sequence[int]) -> Array:
        count = len(tokens)
        self._check_room(count)
        end = self.length + count
        width = self.capacity or end
        rows = np.tile(np.arange(self.length, end, dtype=np.int32), (4, 1))
        rows[1:] += self.delta
        feeds: dict[str, Array] = {
            "input_ids": np.array([tokens], np.int32),
            "attention_mask": (np.arange(width) < end).astype(np.int32)[None],
            "position_ids": rows[:, None],
            **self._pasts(self.graphs["decode"]),
        }
        return self._run(self.graphs["decode"], feeds, count)

    def _run(self, graph: GraphExecutor, feeds: Mapping[str, Array], count: int) -> Array:
        """The logits `[N, V]` of the last tokens, as many as the graph gives, in FP32."""
        results = graph.run(feeds)
        self.states = {name: results[f"present_{name}"] for name in STATES}
        self.length += count
        logits: Array = results["logits"][0].astype(np.float32)
        return logits

    def _pasts(self, graph: GraphExecutor) -> dict[str, Array]:
        """The states as `past_*`; zeros before the first call."""
        pasts = {}
        for name in STATES:
            info = _info(graph, f"past_{name}")
            empty = np.zeros([axis if isinstance(axis, int) else 0 for axis in info.shape])
            pasts[info.name] = self.states.get(name, empty.astype(info.dtype))
        return pasts

    def _check_room(self, count: int) -> None:
        capacity = self.capacity
        if capacity is not None and self.length + count > capacity:
            raise CapacityError(
                f"{count} more tokens do not fit: {self.length} of {capacity} KV slots are in use",
                Remedy.LARGER_CAPACITY,
            )


def encode_picture(
    graph: GraphExecutor,
    pixels: Array,
    grid: tuple[int, int],
    *,
    side: int,
    merge: int,
    gear: int | None = None,
) -> Array:
    """Rows of one picture: `pixels` `[P, patch]` of a grid (height, width), padded to `gear`
    picture tokens. `side` is that of the learned table, `merge` that of a token."""
    count = len(pixels)
    width = count if gear is None else gear * merge**2
    feeds: dict[str, Array] = {}
    for name, array in graph_inputs(pixels, *grid, side, merge).items():
        feeds[name] = np.zeros((width, array.shape[1]), _info(graph, name).dtype)
        feeds[name][:count] = array
    feeds["patch_mask"] = (np.arange(width) < count).astype(np.int32)[None]
    rows: Array = graph.run(feeds)["image_embeds"][: count // merge**2]
    return rows


def _info(graph: GraphExecutor, name: str) -> TensorInfo:
    return next(info for info in graph.inputs if info.name == name)
