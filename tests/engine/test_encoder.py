from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from tests.doubles.numpy_session import FLOAT, NumpySession
from tests.doubles.vision_session import VisionSession


def arrays(patches: int) -> dict[str, Array]:
    return {
        "pixel_values": np.repeat(np.arange(patches, dtype=FLOAT), 12).reshape(patches, 12),
        "position_index": np.zeros((patches, 4), np.int64),
        "position_weight": np.zeros((patches, 4), FLOAT),
        "patch_position": np.zeros((patches, 2), np.int64),
    }


def encoder() -> VisionEncoder:
    return VisionEncoder(VisionSession(patch_values=12), merge_size=2)


@pytest.mark.parametrize("patches", [4, 8, 24])
def test_a_picture_of_any_size_becomes_rows(patches: int) -> None:
    rows = encoder().encode(arrays(patches))

    assert rows.shape == (patches // 4, 6)
    assert rows.dtype == np.float32
    assert rows[:, 0].tolist() == [1.5 + 4 * row for row in range(patches // 4)]


def test_inputs_are_fed_in_the_graphs_own_dtype() -> None:
    given = arrays(4)
    given["pixel_values"] = given["pixel_values"].astype(np.float64)
    given["patch_position"] = given["patch_position"].astype(np.int32)

    np.testing.assert_array_equal(encoder().encode(given), encoder().encode(arrays(4)))


def test_rows_of_one_picture_survive_the_next() -> None:
    vision = encoder()
    first = vision.encode(arrays(4))
    kept = first.copy()
    vision.encode(arrays(8))

    np.testing.assert_array_equal(first, kept)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ValueError, match="also needs patch_position, position_index"):
        encoder().encode({"pixel_values": np.zeros((4, 12), FLOAT)})


def test_a_text_graph_is_no_encoder() -> None:
    with pytest.raises(BundleError, match="must turn pixel_values into image_embeds"):
        VisionEncoder(NumpySession(), merge_size=2)
