"""Our formats of a checkpoint: exported once, then run over the text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.benchmarks.peers.peer import build
from tests.benchmarks.quality.divergence import Float32, Int64

FORMATS: dict[str, tuple[str, ...]] = {
    "fp32": ("--precision", "fp32"),
    "int4": ("--precision", "int4", "--block-size", "128"),
    "int4 calibrated": ("--precision", "int4", "--block-size", "128", "--calibrate"),
    "int4 calibrated, block 64": ("--precision", "int4", "--block-size", "64", "--calibrate"),
    "int4 calibrated, block 32": ("--precision", "int4", "--block-size", "32", "--calibrate"),
    "int8": ("--precision", "int8", "--block-size", "128"),
    "int8 turned": ("--precision", "int8", "--block-size", "128", "--calibrate"),
    "int8 turned, block 32": ("--precision", "int8", "--block-size", "32", "--calibrate"),
}
"""By name, the options of `q35chat export`. Blocks are said, because small matrices have small ones
by default, and what is measured stands for large ones."""


def exported(checkpoint: Path, name: str, work: Path, text: Path, window: int) -> Path:
    """The bundle of a format, made if it is not there."""
    bundle = work / name.replace(" ", "-").replace(",", "")
    options = list(FORMATS[name])
    if options[-1] == "--calibrate" and "int4" in options:
        options[-1:] = ["--calibration", str(text)]
    command = [sys.executable, "-m", "q35chat", "export", str(checkpoint), "--out", str(bundle)]
    command += ["--target", "cpu", "--no-verify", "--component", "text"]
    build([*command, "--max-seq-len", str(window), *options], bundle)
    return bundle


def weight_bytes(bundle: Path) -> int:
    """Bytes of weights, all of which a step reads where the head is tied."""
    return (bundle / "text" / "model.bin").stat().st_size


def logits(bundle: Path, windows: Int64) -> Float32:
    """Logits `[windows, T / 2, V]` of the second half of each of `windows` `[windows, T]`."""
    session = ort.InferenceSession(
        str(bundle / "text" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    length = windows.shape[1]
    hidden = next(value for value in session.get_inputs() if value.name == "image_embeds").shape[1]
    states = {
        value.name: np.zeros(value.shape, np.float32)
        for value in session.get_inputs()
        if value.name.startswith("past_")
    }
    fixed = {
        "attention_mask": np.ones((1, length), np.int32),
        "position_ids": np.tile(np.arange(length), (3, 1, 1)),
        "image_embeds": np.zeros((0, hidden), np.float32),
        "logits_count": np.array([length // 2]),
        **states,
    }
    rows = [
        session.run(["logits"], {"input_ids": window[None], **fixed})[0][0] for window in windows
    ]
    return np.stack(rows)
