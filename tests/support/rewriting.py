"""A checkpoint again with some of its tensors replaced."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file


def rewrite_checkpoint(
    checkpoint: Path, folder: Path, weights: Mapping[str, npt.NDArray[np.float32]]
) -> Path:
    """Copy an FP32 checkpoint of one file to `folder` with `weights` in place of its own."""
    shutil.copytree(checkpoint, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    if unknown := set(weights) - set(tensors):
        raise ValueError(f"{checkpoint} has no {', '.join(sorted(unknown))}")
    changed = {name: np.ascontiguousarray(values) for name, values in weights.items()}
    save_file(tensors | changed, file, metadata={"format": "pt"})
    return folder
