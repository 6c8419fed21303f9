"""Checkpoints whose head for drafts is right, or nearly: the next token hangs on the last one only.

In a decoder whose layers add nothing, the next token is a function of the last. A head whose `fc`
passes the embedding on and whose layer adds nothing, either, computes the same function.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

_DECODER, _HEAD = "model.language_model.", "mtp."
_OUTPUTS = (".o_proj.weight", ".out_proj.weight", ".down_proj.weight")


def make_head_right(folder: Path, gain: float = 0.0) -> None:
    """Change the checkpoint in `folder` so. With a `gain` the decoder's layers add that share of
    what they did, and the head is right now and then."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        if name.startswith((_DECODER, _HEAD)) and name.endswith(_OUTPUTS):
            tensors[name] *= np.float32(0 if name.startswith(_HEAD) else gain)
    fc = tensors["mtp.fc.weight"]
    fc[:] = np.eye(*fc.shape, dtype=fc.dtype)
    tensors["mtp.pre_fc_norm_embedding.weight"][:] = 0
    tensors["mtp.norm.weight"] = tensors[f"{_DECODER}norm.weight"].copy()
    save_file(tensors, path)
