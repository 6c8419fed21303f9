"""The picture rules that the tests share: those of the published Qwen3.5 checkpoints."""

from __future__ import annotations

from typing import Any

from q35chat.vision.patches import fitted_size
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules

CONFIG: dict[str, Any] = {
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
RULES = PictureRules.from_config(CONFIG)


def token_count(width: int, height: int, cap: int = DEFAULT_MAX_IMAGE_TOKENS) -> int:
    """Tokens that a picture of so many pixels is fitted to under `RULES`."""
    fitted_w, fitted_h = fitted_size(width, height, RULES, cap)
    return fitted_w * fitted_h // RULES.factor**2
