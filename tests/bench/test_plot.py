from __future__ import annotations

import pytest

from q35chat.bench.measure import DecodeRun
from q35chat.bench.plot import blocks, latencies, picture


def test_a_step_is_drawn_at_the_median_of_its_rounds() -> None:
    times = ((1.0, 9.0), (2.0, 1.0), (3.0, 2.0))
    rounds = [DecodeRun(0, wall, wall, wall, 0) for wall in times]

    assert latencies(rounds) == [2.0, 2.0]


def test_blocks_show_the_slowest_of_a_group() -> None:
    assert blocks([1.0, 8.0, 1.0, 1.0], width=2) == "█▁"


def test_equal_steps_are_one_low_line() -> None:
    assert blocks([5.0] * 4) == "▁▁▁▁"
    assert blocks([]) == ""


@pytest.mark.parametrize("values", [[3.0], [3.0, 4.0], [0.004] * 100, [1e4, 1.0]])
def test_any_number_of_steps_of_any_length_is_drawn(values: list[float]) -> None:
    image = picture({"first": values, "second": values[::-1]}, "title")

    colours = {colour for _, colour in image.getcolors(1 << 20) or []}
    assert (0x1F, 0x6F, 0xEB) in colours or (0xD1, 0x24, 0x2F) in colours


def test_slower_steps_lie_higher() -> None:
    image = picture({"steps": [1.0] * 50 + [9.0] * 50}, "title")
    blue = [(x, y) for x in range(image.width) for y in range(image.height)
            if image.getpixel((x, y)) == (0x1F, 0x6F, 0xEB)]  # fmt: skip
    left = [y for x, y in blue if 300 < x < 450]
    right = [y for x, y in blue if x > 600]

    assert max(right) < min(left)
