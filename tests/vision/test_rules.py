from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from q35chat.errors import BundleError
from q35chat.vision.rules import PictureRules
from tests.vision.rules import CONFIG


def test_the_rules_come_from_the_preprocessor_config(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    rules = PictureRules.read(path)
    assert (rules.min_pixels, rules.max_pixels) == (65536, 16777216)
    assert (rules.factor, rules.patch_values) == (32, 1536)
    assert (rules.mean, rules.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def test_area_limits_at_the_top_level_win() -> None:
    rules = PictureRules.from_config({**CONFIG, "min_pixels": 1024, "max_pixels": 4096})
    assert (rules.min_pixels, rules.max_pixels) == (1024, 4096)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"patch_size": None}, "patch_size"),
        ({"patch_size": 0}, "patch_size"),
        ({"merge_size": "2"}, "merge_size"),
        ({"size": {"shortest_edge": 5}}, "longest_edge"),
        ({"size": {"shortest_edge": 9, "longest_edge": 5}}, "shortest_edge 9"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ({"image_mean": [0.5]}, "image_mean"),
        ({"resample": 99}, "resample"),
        ({"do_resize": False}, "do_resize"),
        ({"do_normalize": False}, "do_normalize"),
    ],
)
def test_a_bad_value_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleError, match=named):
        PictureRules.from_config({**CONFIG, **change})


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_an_unreadable_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=r"preprocessor_config\.json"):
        PictureRules.read(path)
