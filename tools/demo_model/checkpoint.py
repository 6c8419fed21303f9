"""Writes and reads the Hugging Face folder of the demo model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import GenerationConfig, Qwen3_5ForConditionalGeneration

from . import tokenizer as pieces
from .model import special_id
from .pictures import MAX_PIXELS, MERGE_SIZE, MIN_PIXELS, PATCH_SIZE, TEMPORAL_PATCH_SIZE

PREPROCESSOR: dict[str, Any] = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen3VLProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "resample": 3,
    "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "patch_size": PATCH_SIZE,
    "temporal_patch_size": TEMPORAL_PATCH_SIZE,
    "merge_size": MERGE_SIZE,
}


def generation_config() -> GenerationConfig:
    """Low-temperature sampling; both end tokens stop."""
    return GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_k=20,
        top_p=0.9,
        eos_token_id=[special_id("<|im_end|>"), special_id("<|endoftext|>")],
        pad_token_id=special_id("<|endoftext|>"),
    )


def save_checkpoint(
    model: Qwen3_5ForConditionalGeneration, tokenizer: Tokenizer, folder: Path
) -> None:
    """Write every file that a loader needs into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = generation_config()
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    pieces.save(tokenizer, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
