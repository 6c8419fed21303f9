from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tools.sample_pictures import COLOURS, draw_all

PICTURES = Path(__file__).parents[2] / "assets" / "pictures"


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGBA"))


def test_the_script_draws_what_is_shipped(tmp_path: Path) -> None:
    drawn = {path.name: path for path in draw_all(tmp_path)}
    assert sorted(drawn) == sorted(path.name for path in PICTURES.iterdir())
    for name, path in drawn.items():
        difference = pixels(path).astype(int) - pixels(PICTURES / name)
        assert np.abs(difference).max() <= 8, name  # JPEG decoders differ by a little


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 50_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [("shapes.png", "PNG"), ("two-circles.jpg", "JPEG"), ("triangle.webp", "WEBP")],
)
def test_the_format_is_that_of_the_name(name: str, kind: str) -> None:
    with Image.open(PICTURES / name) as image:
        assert image.format == kind


def test_the_jpeg_is_upright_only_after_its_rotation() -> None:
    path = PICTURES / "two-circles.jpg"
    with Image.open(path) as image:
        assert image.size == (320, 240)
    upright = pixels(path)
    assert upright.shape[:2] == (320, 240)
    np.testing.assert_allclose(upright[58, 120, :3], COLOURS["yellow"], atol=12)
    np.testing.assert_allclose(upright[262, 120, :3], COLOURS["purple"], atol=12)


def test_one_has_transparency_and_one_is_very_wide() -> None:
    assert pixels(PICTURES / "alpha.png")[0, 0, 3] == 0
    height, width = pixels(PICTURES / "wide.png").shape[:2]
    assert width == 8 * height
