"""310P graphs of a checkpoint, written to a folder and fed by hand, without the engine.

`AscendChat` keeps the states between calls and does what a runtime must: pads to a gear, counts
tokens, hands states from prefill to decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat.vision.geometry import geometry
from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.graphs.ascend import COMPONENTS, AscendOptions, build_ascend_graph
from q35export.reference import GraphExecutor
from q35export.weights import FileSink

Array = npt.NDArray[Any]
STATES = ("conv_states", "recurrent_states", "kv_cache")


@dataclass(frozen=True, slots=True)
class Exported:
    """Graphs of one checkpoint, opened."""

    config: ModelConfig
    options: AscendOptions
    graphs: dict[str, GraphExecutor]


def export_ascend(
    checkpoint: Path,
    out: Path,
    options: AscendOptions,
    components: Sequence[str] = COMPONENTS,
) -> Exported:
    """Build the graphs into `out`, one folder each, and open them."""
    config = load_config(checkpoint)
    graphs = {}
    for component in components:
        folder = out / component
        folder.mkdir(parents=True)
        with FileSink(folder / "model.bin", lambda _: None) as sink:
            model = build_ascend_graph(
                component, config, Checkpoint.open(checkpoint), sink, options
            )
        ir.save(model, folder / "model.onnx")
        graphs[component] = GraphExecutor(folder / "model.onnx")
    return Exported(config, options, graphs)


@dataclass
class AscendChat:
    """One sequence. `length` tokens have been seen; `delta` is the mRoPE offset of new ones."""

    exported: Exported
    length: int = 0
    delta: int = 0
    states: dict[str, Array] = field(default_factory=dict)

    def prefill(
        self,
        ids: Sequence[int],
        positions: Array | None = None,
        images: Array | None = None,
        gear: int | None = None,
    ) -> Array:
        """Feed `ids`, padded to `gear`; the last token's logits.

        `positions` `[3, tokens]` are the mRoPE ones; none means text.
        """
        graph, options = self.exported.graphs["prefill"], self.exported.options
        count, width = len(ids), gear or len(ids)
        text = np.arange(self.length, self.length + width)
        rows = np.tile(text, (4, 1)) + np.array([[0]] + [[self.delta]] * 3)
        if positions is not None:
            rows[1:, :count] = positions
        feeds: dict[str, Array] = {
            "input_ids": np.zeros((1, width), np.int32),
            "attention_mask": (np.arange(width) < count).astype(np.int32)[None],
            "position_ids": rows[:, None].astype(np.int32),
            "image_embeds": self._images(images),
        }
        feeds["input_ids"][0, :count] = ids
        if options.stateful_prefill:
            feeds |= self._pasts(graph)
            feeds["past_len"] = np.array([self.length], np.int32)
        results = graph.run(feeds)
        self._keep(results)
        self.length += count
        if not options.fixed_cache:
            self.states["kv_cache"] = self.states["kv_cache"][..., : self.length, :]
        logits: Array = results["logits"][0, 0].astype(np.float32)
        return logits

    def step(self, token: int) -> Array:
        """Feed one token to the decode graph; its logits."""
        graph, options = self.exported.graphs["decode"], self.exported.options
        width = options.capacity if options.fixed_cache else self.length + 1
        place = self.length + self.delta
        results = graph.run(
            {
                "input_ids": np.array([[token]], np.int32),
                "attention_mask": (np.arange(width) <= self.length).astype(np.int32)[None],
                "position_ids": np.array([self.length, place, place, place], np.int32).reshape(
                    4, 1, 1
                ),
                **self._pasts(graph),
            }
        )
        self._keep(results)
        self.length += 1
        logits: Array = results["logits"][0, 0].astype(np.float32)
        return logits

    def greedy(self, logits: Array, count: int) -> list[int]:
        """`count` tokens, the first of them chosen by `logits`."""
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            tokens.append(int(self.step(tokens[-1]).argmax()))
        return tokens

    def _images(self, images: Array | None) -> Array:
        dtype = self.exported.options.float_type.numpy()
        if images is None:
            images = np.zeros((1, self.exported.config.text.hidden_size))
        return images.astype(dtype)

    def _pasts(self, graph: GraphExecutor) -> dict[str, Array]:
        """The states as `past_*`; zeros before the first call."""
        pasts = {}
        for info in graph.inputs:
            name = info.name.removeprefix("past_")
            if name in STATES:
                empty = np.zeros([axis if isinstance(axis, int) else 0 for axis in info.shape])
                pasts[info.name] = self.states.get(name, empty.astype(info.dtype))
        return pasts

    def _keep(self, results: dict[str, Array]) -> None:
        self.states = {name: results[f"present_{name}"] for name in STATES}


def encode_picture(
    exported: Exported, pixels: Array, grid: tuple[int, int], gear: int | None = None
) -> Array:
    """Rows of one picture: `pixels` `[P, patch]` of a grid (height, width), padded to `gear`
    picture tokens."""
    vision, dtype = exported.config.vision, exported.options.float_type.numpy()
    place = geometry(*grid, vision.grid_side, vision.merge_size)
    count = len(pixels)
    width = count if gear is None else gear * vision.merge_size**2

    def padded(array: Array, kind: Any) -> Array:
        whole = np.zeros((width, array.shape[1]), kind)
        whole[:count] = array
        return whole

    rows = exported.graphs["vision"].run(
        {
            "pixel_values": padded(pixels, dtype),
            "position_index": padded(place.position_index, np.int32),
            "position_weight": padded(place.position_weight, dtype),
            "patch_position": padded(place.patch_position, np.int32),
            "patch_mask": (np.arange(width) < count).astype(np.int32)[None],
        }
    )["image_embeds"]
    kept: Array = rows[: count // vision.merge_size**2]
    return kept


def layer_states(exported: Exported, states: dict[str, Array], length: int) -> dict[str, Array]:
    """The states by layer, named `conv_0`, `recurrent_0`, `key_3`, `value_3`; of a cache only the
    `length` slots in use; batch axis kept."""
    convs, recurrents = iter(states["conv_states"]), iter(states["recurrent_states"])
    caches = iter(states["kv_cache"][..., :length, :])
    named: dict[str, Array] = {}
    for index, kind in enumerate(exported.config.text.layer_types):
        if kind == "linear_attention":
            named |= {f"conv_{index}": next(convs), f"recurrent_{index}": next(recurrents)}
        else:
            named |= {f"key_{index}": next(caches), f"value_{index}": next(caches)}
    return named
