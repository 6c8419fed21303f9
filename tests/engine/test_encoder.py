from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array, Buffer, TensorSpec
from q35chat.errors import BundleError
from tests.doubles.numpy_session import FLOAT, NumpySession


class Vision(NumpySession):
    """A row of embeddings is the mean of four patches, cut to three numbers, plus its column."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("pixel_values", (None, 4), FLOAT),
            TensorSpec("patch_position", (None, 2), np.dtype(np.int64)),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("image_embeds", (None, 3), FLOAT),)

    def bind(
        self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]
    ) -> Callable[[], None]:
        def run() -> None:
            rows = inputs["pixel_values"].host().reshape(-1, 4, 4).mean(axis=1)[:, :3]
            columns = inputs["patch_position"].host().reshape(-1, 4, 2)[:, 0, 1:]
            outputs["image_embeds"].write((rows + columns).astype(FLOAT))

        return run


def arrays(patches: int) -> dict[str, Array]:
    return {
        "pixel_values": np.arange(patches * 4, dtype=FLOAT).reshape(patches, 4),
        "patch_position": np.ones((patches, 2), np.int64),
    }


@pytest.mark.parametrize("patches", [4, 8, 24])
def test_a_picture_of_any_size_becomes_rows(patches: int) -> None:
    rows = VisionEncoder(Vision(), merge_size=2).encode(arrays(patches))

    assert rows.shape == (patches // 4, 3)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[0], [7, 8, 9])


def test_rows_of_one_picture_survive_the_next() -> None:
    encoder = VisionEncoder(Vision(), merge_size=2)
    first = encoder.encode(arrays(4))
    kept = first.copy()
    encoder.encode(arrays(8))

    np.testing.assert_array_equal(first, kept)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ValueError, match="also needs patch_position"):
        VisionEncoder(Vision(), merge_size=2).encode({"pixel_values": np.zeros((4, 4), FLOAT)})


def test_a_text_graph_is_no_encoder() -> None:
    with pytest.raises(BundleError, match="must turn pixel_values into image_embeds"):
        VisionEncoder(NumpySession(), merge_size=2)
