from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from q35chat.errors import BundleError
from q35chat.vision.rules import PictureRules
from tests.vision.rules import CONFIG, RULES


def test_the_rules_come_from_the_preprocessor_config(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    rules = PictureRules.read(tmp_path)
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
        ({"patch_size": 10**30}, "patch_size"),
        ({"temporal_patch_size": 10**12}, "temporal_patch_size"),
        ({"merge_size": 10**400}, "merge_size"),
        ({"image_mean": [10**400] * 3}, "image_mean"),
        ({"image_std": [10**400] * 3}, "image_std"),
        ({"image_std": [float("nan")] * 3}, "image_std"),
        ({"rescale_factor": float("inf")}, "rescale_factor"),
        ({"max_pixels": 10**400}, "max_pixels"),
        ({"size": [1]}, "size"),
        ({"do_resize": False}, "do_resize"),
        ({"do_normalize": False}, "do_normalize"),
    ],
)
def test_a_bad_value_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BundleError, match=named):
        PictureRules.from_config({**CONFIG, **change})


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 20_000])
def test_an_unreadable_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=r"preprocessor_config\.json"):
        PictureRules.read(tmp_path)


@pytest.mark.parametrize(
    ("patches", "said"),
    [
        ((14, 2, 2), "patch_size is 16, the model has 14"),
        ((16, 1, 2), "temporal_patch_size is 2, the model has 1"),
        ((16, 2, 1024), "merge_size is 2, the model has 1,024"),
    ],
)
def test_rules_of_another_model_are_refused(patches: tuple[int, int, int], said: str) -> None:
    patch, frames, merged = patches
    with pytest.raises(BundleError, match=rf"^preprocessor_config\.json: {said}; export"):
        RULES.check(patch_size=patch, temporal_patch_size=frames, merge_size=merged)
    RULES.check(patch_size=16, temporal_patch_size=2, merge_size=2)
