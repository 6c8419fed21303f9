"""The architecture of the language model: the published proportions, widths multiples of 256."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from tools.demo_model.tokenizer import SPECIAL_TOKENS

from .texts import PIECES

VOCABULARY = 8192
"""Rows of the embedding; those behind the special tokens are named by no token."""


def configuration() -> Qwen3_5Config:
    """The whole `config.json`; every projection's input is a multiple of 256 wide, as the formats
    of llama.cpp with two levels of scales need it."""
    text: dict[str, Any] = {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCABULARY,
        "hidden_size": 512,
        "intermediate_size": 768,
        "num_hidden_layers": 8,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [6, 5, 5],
        },
        "bos_token_id": None,
        "eos_token_id": special_id("<|im_end|>"),
        "pad_token_id": None,
    }
    vision: dict[str, Any] = {
        "model_type": "qwen3_5_vision",
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 512,
        "num_position_embeddings": 144,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
    }
    return Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=special_id("<|image_pad|>"),
        video_token_id=special_id("<|video_pad|>"),
        vision_start_token_id=special_id("<|vision_start|>"),
        vision_end_token_id=special_id("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def special_id(token: str) -> int:
    """The id of a special token: they follow the pieces in a fixed order."""
    return PIECES + SPECIAL_TOKENS.index(token)


def new_model(seed: int) -> Qwen3_5ForConditionalGeneration:
    """A model with random weights."""
    torch.manual_seed(seed)
    return Qwen3_5ForConditionalGeneration(configuration())
