"""A text graph of a checkpoint without a bundle around it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.graphs.text import build_text_graph
from q35export.precision import FLOAT_PLAN, PrecisionPlan
from q35export.weights import FileSink


def write_text_graph(
    checkpoint: Path, folder: Path, capacity: int, plan: PrecisionPlan = FLOAT_PLAN
) -> Path:
    """`model.onnx` in `folder`, its weights in `model.bin` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileSink(folder / "model.bin", lambda _: None) as sink:
        model = build_text_graph(
            load_config(checkpoint), Checkpoint.open(checkpoint), sink, capacity=capacity, plan=plan
        )
    ir.save(model, folder / "model.onnx")
    return folder / "model.onnx"
