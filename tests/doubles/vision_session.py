"""A vision graph in numpy: a row of embeddings is made of four patches and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from q35chat.engine.session import Buffer, TensorSpec
from tests.doubles.numpy_session import FLOAT, NumpyBuffer

_INT = np.dtype(np.int64)


@dataclass(slots=True)
class VisionSession:
    """`width` numbers a row; `pictures` counts the runs. Without geometry every patch lies at 0."""

    patch_values: int = 1536
    width: int = 6
    pictures: int = 0
    closed: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    fixed_patches: int | None = None
    with_geometry: bool = True

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        pixels = TensorSpec("pixel_values", (self.fixed_patches, self.patch_values), FLOAT)
        if not self.with_geometry:
            return (pixels,)
        return (
            pixels,
            TensorSpec("position_index", (None, 4), _INT),
            TensorSpec("position_weight", (None, 4), FLOAT),
            TensorSpec("patch_position", (None, 2), _INT),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("image_embeds", (None, self.width), FLOAT),)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return NumpyBuffer(np.zeros(shape, dtype))

    def bind(
        self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]
    ) -> Callable[[], None]:
        assert set(inputs) == {spec.name for spec in self.inputs}

        def run() -> None:
            self.pictures += 1
            values = inputs["pixel_values"].host()
            parts = np.array_split(values, self.width, axis=1)
            means = np.stack([part.mean(axis=1) for part in parts], axis=1)
            if self.with_geometry:
                means += inputs["patch_position"].host().sum(axis=1, keepdims=True) * 0.1
            rows = means.reshape(-1, 4, self.width).mean(axis=1)
            outputs["image_embeds"].write(rows.astype(FLOAT))

        return run

    def close(self) -> None:
        self.closed = True
