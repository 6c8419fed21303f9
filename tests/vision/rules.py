"""The picture rules that the tests share: those of the published Qwen3.5 checkpoints."""

from __future__ import annotations

from typing import Any

from q35chat.vision.rules import PictureRules

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
