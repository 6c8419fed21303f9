"""What was published of Qwen3.8 is read whole: sizes, picture rules, defaults, and every tensor;
and the sizes of Qwen3.5 with experts.

`tests/golden/published` has the facts of their small files, tensors by name with the layers that
have them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.checkpoint import GenerationDefaults
from q35chat.errors import CheckpointError
from q35chat.vision.rules import PictureRules
from q35export.config import Experts, parse_config
from q35export.inventory import expected_tensors
from q35export.matrix import HEAD

FOLDER = Path(__file__).parents[1] / "golden" / "published"
PUBLISHED, EXPERTS = FOLDER / "qwen3.8-27b.json", FOLDER / "qwen3.5-35b-a3b.json"


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return found


def names(tensors: dict[str, str]) -> set[str]:
    """Every tensor's name: `*` stands for the layers of the ranges."""
    found = set()
    for pattern, ranges in tensors.items():
        pairs = [text.partition("-") for text in ranges.split()]
        layers = [
            layer for first, _, last in pairs for layer in range(int(first), int(last or first) + 1)
        ]
        found |= {pattern.replace("*", str(layer)) for layer in layers} or {pattern}
    return found


def test_every_published_tensor_is_the_models_and_every_one_of_it_is_published(
    published: dict[str, Any],
) -> None:
    config = parse_config(published["config"])
    expected = {
        name for part in ("text", "vision", "mtp") for name in expected_tensors(config, part)
    }
    assert expected == names(published["tensors"])
    assert len(expected) > 1000
    assert expected_tensors(config, "text")[HEAD] == (248320, 5120)


def test_the_published_sizes_are_read(published: dict[str, Any]) -> None:
    config = parse_config(published["config"])
    text, vision = config.text, config.tower
    assert (len(text.layer_types), text.layer_types.count("full_attention")) == (64, 16)
    assert (text.linear_value_heads, text.linear_key_heads) == (48, 16)
    assert (text.rope.theta, text.rope.dim, text.rope.sections) == (1e7, 64, (11, 11, 10))
    assert (text.max_positions, text.mtp_layers, text.tied) == (262144, 1, False)
    assert (vision.depth, vision.grid_side, vision.out_hidden_size) == (27, 48, 5120)


def test_the_published_rules_and_defaults_are_read(
    published: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("preprocessor_config", "generation_config"):
        (tmp_path / f"{name}.json").write_text(json.dumps(published[name]))
    rules = PictureRules.read(tmp_path)
    assert (rules.min_pixels, rules.max_pixels, rules.factor) == (65536, 16777216, 32)
    vision = parse_config(published["config"]).tower
    rules.check(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.merge_size,
    )
    defaults = GenerationDefaults.read(tmp_path)
    assert defaults.stop_ids == {248044, 248046}
    assert (defaults.sampling.temperature, defaults.sampling.top_k) == (1.0, 20)


def test_a_mixture_of_experts_is_read_as_published() -> None:
    config = parse_config(json.loads(EXPERTS.read_text(encoding="utf-8")))
    assert config.text.experts == Experts(256, 8, 512, 512, normalised=True)
    assert (config.text.hidden_size, len(config.text.layer_types)) == (2048, 40)
    assert (config.tower.depth, config.tower.out_hidden_size) == (27, 2048)


def test_a_model_of_another_family_is_named_as_what_it_is(published: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"'qwen3_vl_moe', not 'qwen3_5' or 'qwen3_5_moe'"):
        parse_config(published["config"] | {"model_type": "qwen3_vl_moe"})


def test_more_choices_than_experts_are_refused() -> None:
    raw = json.loads(EXPERTS.read_text(encoding="utf-8"))
    raw["text_config"]["num_experts"] = 4
    with pytest.raises(CheckpointError, match="num_experts_per_tok 8 is more than num_experts 4"):
        parse_config(raw)
