"""310P graphs of a checkpoint, written to a folder and opened, with the chat that feeds them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from q35export.ascend.graphs import BUILDERS, AscendOptions
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.reference import chat as reference
from q35export.ascend.reference.chat import STATES, GraphChat
from q35export.calibration.calibrate import Texts, Window
from q35export.calibration.int8_steps import calibrate_int8
from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.graph import Array
from q35export.precision import FLOAT_PLAN, PrecisionPlan, precision_plan
from q35export.progress import PlainReporter
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
    plan: PrecisionPlan | None = None,
) -> Exported:
    """Build the graphs into `out`, one folder each, and open them."""
    write_ascend(checkpoint, out, options, components, plan)
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
    plan: PrecisionPlan | None = None,
) -> None:
    """Build the graphs into `out`, one folder each; in int8 with steps that random tokens set,
    unless there is a `plan`."""
    config = load_config(checkpoint)
    if plan is None:
        plan = int8_plan(checkpoint, out) if options.w8a8 else FLOAT_PLAN
    for component in components:
        folder = out / component
        folder.mkdir(parents=True)
        with FileSink(folder / "model.bin", lambda _: None) as sink:
            model = BUILDERS[component](config, Checkpoint.open(checkpoint), sink, options, plan)
        ir.save(model, folder / "model.onnx")


def int8_plan(checkpoint: Path, work: Path) -> PrecisionPlan:
    """A plan with steps for a text of random tokens."""
    work.mkdir(parents=True, exist_ok=True)
    config, plan = load_config(checkpoint).text, replace(precision_plan("w8a8"), turned=True)
    ids = np.random.default_rng(2).integers(0, config.vocab_size - 20, (5, 128))
    windows = [Window(row, np.tile(np.arange(128), (3, 1))) for row in ids]
    texts = Texts(windows, windows[:1])
    source = Checkpoint.open(checkpoint)
    return calibrate_int8(config, source, plan, texts, work, PlainReporter(io.StringIO()))[0]


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
