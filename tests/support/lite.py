"""Exported 310P graphs as files of the MindSpore Lite stand-in, and as sessions over them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.gears import Costs, Gear
from q35chat.ascend.mindspore_lite import LiteSession
from q35chat.ascend.native_log import NativeLog
from q35chat.ascend.options import NpuOptions
from q35chat.ascend.prefill import ROWS, TOLD
from q35chat.ascend.residency import Mode, Residency
from q35export.ascend.converter_config import read_inputs, shapes
from q35export.ascend.reference import GraphExecutor
from tests.doubles.mindspore_lite.modelfile import write_model

PATCHES_PER_TOKEN = 4


def converted(onnx: Path, out: Path, *, weights: int = 1 << 20, loader: str = "load") -> Path:
    """What a converter makes of the graph file `onnx`: the model file `out`.

    `loader` is a function of `tests.doubles.mindspore_lite.onnx_graph`.
    """
    graph = read_inputs(onnx)
    input_shape, dynamic_dims = shapes(graph, PATCHES_PER_TOKEN) if graph.free_axes else ("", "")
    return write_model(
        out,
        f"tests.doubles.mindspore_lite.onnx_graph:{loader}",
        {"path": str(onnx.resolve())},
        input_shape=input_shape,
        dynamic_dims=dynamic_dims,
        weights=weights,
    )


def reference_folder(bundle: Path, out: Path, *, grid: int, table: int) -> Path:
    """The graphs of a stateless bundle as the reference scripts and the converter leave them in
    one folder: their names, a vision tower of one square, logits of every token, no padding.

    `grid` is the square's side in patches, `table` that of the learned positions.
    """
    write_model(
        out / "qwen3_5_vision.mindir",
        "tests.doubles.mindspore_lite.onnx_graph:load_square_tower",
        {"path": str((bundle / "vision" / "model.onnx").resolve()), "grid": grid, "table": table},
    )
    for kind, loader in (("prefill", "load_all_tokens"), ("decode", "load")):
        graph = out / f"qwen3_5_llm_{kind}_graph.mindir"
        converted(bundle / kind / "model.onnx", graph, loader=loader)
    shutil.copytree(bundle / "processor", out / "processor")
    return out


@dataclass
class LiteGraphs:
    """The graphs in `folder` (one folder each, `model.onnx`), opened as they are asked for."""

    folder: Path
    out: Path
    device: NpuOptions = field(default_factory=NpuOptions)
    mode: Mode = "both"
    weights: int = 1 << 20
    loaders: dict[str, str] = field(default_factory=dict)
    kernels: str = ""
    log: NativeLog = field(kw_only=True)

    def __post_init__(self) -> None:
        self.residency = Residency(self.mode)

    def session(self, kind: str) -> LiteSession:
        path = self.out / kind / f"{kind}_graph.mindir"
        if not path.exists():
            converted(
                self.folder / kind / "model.onnx",
                path,
                weights=self.weights,
                loader=self.loaders.get(kind, "load"),
            )
        told = {}
        if kind == "prefill" and kind not in self.loaders:
            told = {
                "q35chat.logits": "last",
                TOLD: self.kernels,
            }  # as the manifest of an export of ours tells
            rows = GraphExecutor(self.folder / kind / "model.onnx").outputs[0].shape[1]
            told |= {} if rows == 1 else {ROWS: str(rows)}
        elif kind == "decode":
            told = {TOLD: self.kernels}
        return LiteSession(
            path, kind, self.device, self.log, residency=self.residency, metadata=told
        )

    def decoder(self, image_token_id: int | None = None) -> GearedDecoder:
        decode, prefill = self.session("decode"), self.session("prefill")
        vocab = GraphExecutor(self.folder / "decode" / "model.onnx").outputs[0].shape[-1]
        return GearedDecoder(decode, prefill, image_token_id=image_token_id,
                       costs=GuessedCosts(), vocab_size=int(vocab))  # fmt: skip


class GuessedCosts(Costs):
    """Measures nothing, so that prompts are cut the same way however busy the machine is."""

    def note(self, gear: Gear | None, milliseconds: float) -> None:
        pass
