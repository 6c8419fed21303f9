"""The prompts that a comparison runs: text and drawn pictures, the same everywhere.

Pictures are drawn with integer arithmetic from a seed, so their pixels never depend on a library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

_CELL = 8


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture to draw: its size in pixels and the seed of its colours."""

    width: int
    height: int
    seed: int

    def image(self) -> Image.Image:
        """The picture, RGB: patches of flat colour under a gradient."""
        generator = np.random.default_rng(self.seed)
        cells = (-(-self.height // _CELL), -(-self.width // _CELL), 3)
        flat = generator.integers(0, 192, cells, dtype=np.int64)
        wide = flat.repeat(_CELL, axis=0).repeat(_CELL, axis=1)[: self.height, : self.width]
        slope = np.arange(self.width)[None, :, None] * 63 // self.width
        return Image.fromarray((wide + slope).astype(np.uint8), "RGB")


@dataclass(frozen=True, slots=True)
class Sample:
    """One user message: pictures first, then the text."""

    name: str
    text: str
    drawings: tuple[Drawing, ...] = ()


SAMPLES = (
    Sample("text", "Name three colours and say which one you like most, in one sentence."),
    Sample("one picture", "What is in the picture?", (Drawing(320, 200, 1),)),
    Sample("two pictures", "What differs?", (Drawing(400, 96, 2), Drawing(120, 260, 3))),
)
