from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.errors import PictureError
from q35chat.vision.resize import fitted_size
from tests.vision.rules import RULES, token_count

NO_CAP = RULES.max_pixels // RULES.factor**2


def test_a_twelve_megapixel_photo_is_capped() -> None:
    assert token_count(4000, 3000, NO_CAP) == 11750
    assert fitted_size(4000, 3000, RULES) == (1152, 864)
    assert token_count(4000, 3000) == 972


def test_a_single_pixel_grows_to_the_least_area() -> None:
    assert fitted_size(1, 1, RULES) == (256, 256)


def test_a_picture_on_the_grid_keeps_its_size() -> None:
    assert fitted_size(640, 480, RULES) == (640, 480)


def test_a_cap_under_the_least_area_wins_over_it() -> None:
    assert token_count(640, 640, 4) == 4
    assert token_count(1, 1, 1) == 1


@pytest.mark.parametrize(("width", "height"), [(201, 1), (1, 201), (20_001, 100)])
def test_a_strip_over_the_aspect_limit_is_refused(width: int, height: int) -> None:
    with pytest.raises(PictureError, match=f"a.png has {width} x {height} pixels, more than 200"):
        fitted_size(width, height, RULES, name="a.png")


@pytest.mark.parametrize(("width", "height"), [(200, 1), (1, 200), (20_000, 100)])
def test_a_strip_at_the_aspect_limit_is_taken(width: int, height: int) -> None:
    assert 1 <= token_count(width, height) <= 1024


def test_a_cap_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 picture tokens"):
        token_count(10, 10, 0)


@given(width=st.integers(1, 20_000), ratio=st.floats(1 / 200, 200), cap=st.integers(1, NO_CAP))
def test_tokens_never_pass_the_cap_and_sides_lie_on_the_grid(
    width: int, ratio: float, cap: int
) -> None:
    height = min(max(1, -(-width // 200), round(width * ratio)), width * 200)
    fitted_w, fitted_h = fitted_size(width, height, RULES, cap)
    assert fitted_w % RULES.factor == fitted_h % RULES.factor == 0
    assert 1 <= token_count(width, height, cap) <= cap
