"""Our formats of a checkpoint: exported once, then run over the text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.benchmarks.peers.peer import build
from tests.benchmarks.quality.divergence import Float32, Int64

CAPACITY = 1024
FORMATS: dict[str, tuple[str, ...]] = {
    "fp32": ("--precision", "fp32"),
    "int4": ("--precision", "int4", "--bits", "4.75", "--block-size", "128"),
    "int4, 4.25 bits": ("--precision", "int4", "--bits", "4.25", "--block-size", "128"),
    "int4-exact": ("--precision", "int4-exact", "--block-size", "128"),
    "int4, not calibrated": ("--precision", "int4", "--block-size", "128", "--no-calibrate"),
    "int8": ("--precision", "int8", "--block-size", "128"),
    "int8, not calibrated": ("--precision", "int8", "--block-size", "128", "--no-calibrate"),
    "int8, block 32": ("--precision", "int8", "--block-size", "32"),
    "int4, block 32": ("--precision", "int4", "--block-size", "32"),
    "int4, block 64": ("--precision", "int4", "--block-size", "64"),
    "int4, block 128": ("--precision", "int4", "--block-size", "128"),
}
"""By name, the options of `q35chat export`. Blocks are said, because small matrices have small ones
by default, and what is measured stands for large ones. Mixtures of experts have those without
`--bits`: ask for them by name."""


def exported(checkpoint: Path, name: str, work: Path, text: Path | None = None) -> Path:
    """The bundle of a format, made if it is not there; `text` is one to calibrate with."""
    bundle = work / name.replace(" ", "-").replace(",", "")
    options = [*FORMATS[name]]
    if text and "int4" in options[1] and "--no-calibrate" not in options:
        options += ["--calibration", str(text)]
    command = [sys.executable, "-m", "q35chat", "export", str(checkpoint), "--out", str(bundle)]
    command += ["--target", "cpu", "--no-verify", "--component", "text"]
    build([*command, "--max-seq-len", str(CAPACITY), *options], bundle)
    return bundle


def text_graph(bundle: Path) -> Path:
    """The graph of its decoder."""
    return bundle / "text" / "model.onnx"


def logits(bundle: Path, windows: Int64) -> Float32:
    """Logits `[windows · (T / 2 - 1), V]` of the second half of each of `windows` `[windows, T]`
    but its last token."""
    session = ort.InferenceSession(str(text_graph(bundle)), providers=["CPUExecutionProvider"])
    shapes = {
        value.name: [0 if isinstance(axis, str) else axis for axis in value.shape]
        for value in session.get_inputs()
    }
    length = windows.shape[1]
    lit = np.arange(shapes["attention_mask"][1]) < length
    fixed = {
        "attention_mask": lit.astype(np.int32)[None],
        "position_ids": np.tile(np.arange(length), (3, 1, 1)),
        "image_embeds": np.zeros((0, shapes["image_embeds"][1]), np.float32),
        "logits_count": np.array([length // 2]),
        **{
            name: np.zeros(shape, np.float32)
            for name, shape in shapes.items()
            if name.startswith(("past_", "filled_"))
        },
    }
    feeds = ({"input_ids": window[None], **fixed} for window in windows)
    return np.concatenate([session.run(["logits"], each)[0][0, :-1] for each in feeds])
