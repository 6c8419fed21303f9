"""Writes safetensors files by blocks of rows, so that memory never holds a whole tensor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.weights import Tensor

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def stored_dtype(tensor: Tensor, dtype: str) -> str:
    """The dtype a tensor is stored in when the checkpoint's is `dtype`."""
    return "float32" if tensor.keep_float32 and dtype == "bfloat16" else dtype


def size_of(tensor: Tensor, dtype: str) -> int:
    """Bytes on disk."""
    return int(np.prod(tensor.shape)) * DTYPES[stored_dtype(tensor, dtype)].itemsize


def write_weights(
    folder: Path, plan: Sequence[Tensor], *, seed: int, dtype: str, shards: int
) -> None:
    """Write `model.safetensors`, or `shards` files of about the same size and their index."""
    if shards == 1:
        _write_file(folder / "model.safetensors", plan, seed, dtype)
        return
    where: dict[str, str] = {}
    for number, part in enumerate(_split(plan, dtype, shards), start=1):
        name = f"model-{number:05}-of-{shards:05}.safetensors"
        _write_file(folder / name, part, seed, dtype)
        where |= {tensor.name: name for tensor in part}
    total = sum(size_of(tensor, dtype) for tensor in plan)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def _split(plan: Sequence[Tensor], dtype: str, shards: int) -> list[list[Tensor]]:
    parts: list[list[Tensor]] = [[] for _ in range(shards)]
    total = sum(size_of(tensor, dtype) for tensor in plan)
    seen = 0
    for tensor in plan:
        parts[min(shards - 1, seen * shards // total)].append(tensor)
        seen += size_of(tensor, dtype)
    return parts


def _write_file(path: Path, plan: Sequence[Tensor], seed: int, dtype: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in plan:
        size = size_of(tensor, dtype)
        header[tensor.name] = {
            "dtype": _CODES[stored_dtype(tensor, dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in plan:
            stored = DTYPES[stored_dtype(tensor, dtype)]
            for block in tensor.blocks(seed):
                file.write(block.astype(stored, copy=False).tobytes())
