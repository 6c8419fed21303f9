"""Random Qwen3.5 checkpoints on disk: the same bytes for the same shape, seed and dtype.

No torch. transformers loads them with no tensor missing and none left over.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.safetensors_writer import DTYPES, write_weights
from tests.support.shapes import EXPERT_SHAPES, FULL_SHAPES, SHAPES, ShapeSpec, config
from tests.support.tokenizer import write_processor_files
from tests.support.weights import tensors

__all__ = ["EXPERT_SHAPES", "FULL_SHAPES", "SHAPES", "ShapeSpec", "make_checkpoint"]


def make_checkpoint(
    folder: Path,
    shape: str | ShapeSpec = "plain",
    seed: int = 0,
    dtype: str = "float32",
    shards: int = 1,
    *,
    with_mtp: bool = False,
) -> Path:
    """Write a whole checkpoint into `folder` (made if needed) and return it.

    `shape` is a `ShapeSpec` or a name in one of the tables of shapes; `dtype` one of float32,
    float16, bfloat16 (bfloat16 keeps a few vectors in float32, as the published ones do).
    """
    spec = shape if isinstance(shape, ShapeSpec) else (SHAPES | EXPERT_SHAPES | FULL_SHAPES)[shape]
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype} is not one of {', '.join(DTYPES)}")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config(spec, dtype=dtype, with_mtp=with_mtp), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    write_processor_files(folder, spec)
    plan = tensors(spec, with_mtp=with_mtp)
    write_weights(folder, plan, seed=seed, dtype=dtype, shards=shards)
    return folder
