from __future__ import annotations

import numpy as np
import pytest

from q35chat.ascend.runtime import GearedEncoder
from q35chat.engine.encoder import NoGeometryError
from tests.doubles.vision_session import VisionSession


def square(patches: int | None) -> VisionSession:
    """A graph that takes pixels only, as other scripts make it."""
    return VisionSession(patch_values=12, fixed_patches=patches, with_geometry=False)


def test_a_graph_that_takes_pixels_only_has_one_square_built_in() -> None:
    vision = GearedEncoder(square(64), merge_size=2)

    assert (vision.square_side, vision.max_rows) == (8, 16)
    assert vision.encode({"pixel_values": np.zeros((64, 12), np.float32)}).shape == (16, 6)


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (None, "takes any number of patches but not where they lie"),
        (60, "takes 60 patches, which are no square of 2 x 2 blocks"),
        (49, "takes 49 patches, which are no square of 2 x 2 blocks"),
    ],
)
def test_a_built_in_geometry_that_nobody_told_is_refused(patches: int | None, message: str) -> None:
    with pytest.raises(NoGeometryError, match=message):
        GearedEncoder(square(patches), merge_size=2)
