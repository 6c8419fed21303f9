"""310P graphs of a checkpoint, written to a folder and opened, with the chat that feeds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from q35export.ascend.graphs import BUILDERS, AscendOptions
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.reference import chat as reference
from q35export.ascend.reference.chat import STATES, GraphChat
from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.graph import Array
from q35export.weights import FileSink

__all__ = ["STATES", "Array", "AscendChat", "Exported", "encode_picture", "export_ascend"]


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
    components: Sequence[str] = tuple(BUILDERS),
) -> Exported:
    """Build the graphs into `out`, one folder each, and open them."""
    write_ascend(checkpoint, out, options, components)
    return open_ascend(checkpoint, out, options, components)


def open_ascend(
    checkpoint: Path,
    out: Path,
    options: AscendOptions,
    components: Sequence[str] = tuple(BUILDERS),
) -> Exported:
    """Open the graphs in `out`."""
    graphs = {name: GraphExecutor(out / name / "model.onnx") for name in components}
    return Exported(load_config(checkpoint), options, graphs)


def write_ascend(
    checkpoint: Path,
    out: Path,
    options: AscendOptions,
    components: Sequence[str] = tuple(BUILDERS),
) -> None:
    """Build the graphs into `out`, one folder each."""
    config = load_config(checkpoint)
    for component in components:
        folder = out / component
        folder.mkdir(parents=True)
        with FileSink(folder / "model.bin", lambda _: None) as sink:
            model = BUILDERS[component](config, Checkpoint.open(checkpoint), sink, options)
        ir.save(model, folder / "model.onnx")


class AscendChat(GraphChat):
    """One sequence over exported graphs."""

    def __init__(self, exported: Exported) -> None:
        super().__init__(exported.graphs)
        self.exported = exported

    def greedy(self, logits: Array, count: int) -> list[int]:
        """`count` tokens, the first of them chosen by `logits`."""
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            tokens.append(int(self.step(tokens[-1]).argmax()))
        return tokens

    def by_layer(self) -> dict[str, Array]:
        """The states of every layer, see `layer_states`."""
        return self.layer_states(self.exported.config.text.layer_types)


def encode_picture(
    exported: Exported, pixels: Array, grid: tuple[int, int], gear: int | None = None
) -> Array:
    """Rows of one picture: `pixels` `[P, patch]` of a grid (height, width), padded to `gear`
    picture tokens."""
    vision = exported.config.tower
    side, merge = vision.grid_side, vision.merge_size
    graph = exported.graphs["vision"]
    return reference.encode_picture(graph, pixels, grid, side=side, merge=merge, gear=gear)
