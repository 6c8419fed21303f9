"""`python -m tests.parity.rewrite_goldens [SHAPE ...]`: write `tests/golden` from transformers."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.checkpoints import SHAPES
from tests.support.golden import save
from tests.support.reference import fresh_golden


def main(shapes: list[str]) -> None:
    """Rewrite the golden files of `shapes`, or of all."""
    for shape in shapes or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            golden = fresh_golden(shape, Path(folder))
        save(golden)
        sys.stdout.write(f"{shape}: seed {golden.seed}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
