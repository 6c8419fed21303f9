"""The architecture of the demo model: every kind of part that a real Qwen3.5 has, in small.

Owns the sizes and the configuration files that say them. Knows nothing of training.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from .pictures import MERGE_SIZE, PATCH_SIZE, TEMPORAL_PATCH_SIZE
from .tokenizer import SPECIAL_TOKENS, VOCAB_SIZE

HIDDEN = 160
LAYERS = 6
FULL_ATTENTION_EVERY = 2


def special_id(token: str) -> int:
    """The id of a special token: they follow the BPE vocabulary in a fixed order."""
    return VOCAB_SIZE + SPECIAL_TOKENS.index(token)


def configuration() -> Qwen3_5Config:
    """The whole `config.json` as an object.

    Widths of every projection's input are multiples of 32, so that int4 blocks of 32 divide them.
    """
    text: dict[str, Any] = {
        "model_type": "qwen3_5_text",
        "vocab_size": padded_vocabulary(),
        "hidden_size": HIDDEN,
        "intermediate_size": 416,
        "num_hidden_layers": LAYERS,
        "layer_types": [
            "linear_attention" if (index + 1) % FULL_ATTENTION_EVERY else "full_attention"
            for index in range(LAYERS)
        ],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [4, 2, 2],
        },
        "bos_token_id": None,
        "eos_token_id": special_id("<|im_end|>"),
        "pad_token_id": None,
    }
    vision: dict[str, Any] = {
        "model_type": "qwen3_5_vision",
        "depth": 2,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_heads": 3,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 144,
        "patch_size": PATCH_SIZE,
        "spatial_merge_size": MERGE_SIZE,
        "temporal_patch_size": TEMPORAL_PATCH_SIZE,
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


def padded_vocabulary() -> int:
    """Rows of the embedding: the tokenizer's size rounded up to a multiple of 32."""
    return -(-(VOCAB_SIZE + len(SPECIAL_TOKENS)) // 32) * 32


def new_model() -> Qwen3_5ForConditionalGeneration:
    """A model with random weights; seed torch before the call.

    Position embeddings start as large as patches are, or places in a picture are learnt late.
    """
    model = Qwen3_5ForConditionalGeneration(configuration())
    torch.nn.init.normal_(model.model.visual.pos_embed.weight, std=0.4)
    return model
