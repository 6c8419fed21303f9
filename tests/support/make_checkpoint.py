"""`python -m tests.support.make_checkpoint --shape 0.8b --out DIR`: a random checkpoint on disk."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.checkpoints import FULL_SHAPES, SHAPES, make_checkpoint
from tests.support.safetensors_writer import DTYPES


def main(arguments: list[str] | None = None) -> int:
    """Write the checkpoint that the command line describes."""
    parser = argparse.ArgumentParser(description="Write a Qwen3.5 checkpoint of random weights.")
    parser.add_argument("--shape", choices=sorted(SHAPES | FULL_SHAPES), default="0.8b")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--layers", type=int, help="only the first of the shape's layers")
    parser.add_argument("--with-mtp", action="store_true")
    asked = parser.parse_args(arguments)
    shape = (SHAPES | FULL_SHAPES)[asked.shape]
    shape = replace(shape, layers=shape.layers[: asked.layers])
    make_checkpoint(
        asked.out, shape, asked.seed, asked.dtype, asked.shards, with_mtp=asked.with_mtp
    )
    sys.stdout.write(f"{asked.out}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
