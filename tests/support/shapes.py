"""The shapes of the checkpoints that tests are made of, and the `config.json` that says each.

Together the small shapes take every branch a Qwen3.5 graph has; the full ones are the published
sizes for benchmarks. Knows no weights and no tokenizer beyond the ids of its special tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<think>",
    "</think>",
)
PADDING_ROWS = 7  # rows of the embedding that no token names, as in the published checkpoints


@dataclass(frozen=True, slots=True)
class ShapeSpec:
    """Sizes of one checkpoint, named as in `graph-contracts`: NK, NV linear key and value heads."""

    vocab: int = 384
    hidden: int = 128
    intermediate: int = 256
    layers: str = "LLLF"  # one letter a decoder layer: Linear or Full attention
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    nk: int = 2
    nv: int = 4
    dk: int = 32
    dv: int = 32
    kernel: int = 4
    tied: bool = True
    rotary: float = 0.25
    mrope_section: tuple[int, int, int] = (3, 3, 2)
    rope_theta: float = 10_000_000.0
    interval_only: bool = False  # config.json says full_attention_interval and no layer_types
    vision_depth: int = 2
    vision_hidden: int = 64
    vision_intermediate: int = 128
    vision_heads: int = 2
    grid_side: int = 6
    patch: int = 16
    merge: int = 2
    temporal_patch: int = 2
    image_tokens: tuple[int, int] = (4, 64)  # the processor's limits for one picture
    experts: int = 0  # of a mixture of experts, each of the width `intermediate`
    chosen: int = 0
    shared: int = 0  # width of the expert that all tokens share
    normalised: bool = True

    @property
    def layer_types(self) -> list[str]:
        """The kind of each decoder layer, as `config.json` spells it."""
        names = {"L": "linear_attention", "F": "full_attention"}
        return [names[letter] for letter in self.layers]

    @property
    def conv_channels(self) -> int:
        """CD: channels of the causal convolution."""
        return 2 * self.nk * self.dk + self.nv * self.dv

    @property
    def first_special(self) -> int:
        """The id of the first special token; the others follow."""
        return self.vocab - PADDING_ROWS - len(SPECIAL_TOKENS)

    def special_id(self, token: str) -> int:
        """The id of a special token."""
        return self.first_special + SPECIAL_TOKENS.index(token)


SHAPES: dict[str, ShapeSpec] = {
    # The published proportions in small: 3 linear to 1 full, NV = 2 NK, grouped queries.
    "plain": ShapeSpec(),
    # NK = NV, NH = NKV, untied, odd vocabulary, two linear to one full, head dim 32.
    "even": ShapeSpec(
        vocab=389, hidden=96, intermediate=192, layers="LLFLLF", heads=2, kv_heads=2, head_dim=32,
        nk=4, nv=4, dk=16, dv=16, tied=False, rotary=0.5, interval_only=True,
        vision_depth=1, vision_heads=4, grid_side=10, patch=8,
    ),
    # Full attention first, one to one, NV = 4 NK, true head dim 256 with the true sections.
    "full_first": ShapeSpec(
        vocab=401, hidden=160, intermediate=288, layers="FLFL", heads=2, kv_heads=1, head_dim=256,
        nk=1, nv=4, dk=64, dv=32, mrope_section=(11, 11, 10),
        vision_hidden=96, vision_intermediate=160, vision_heads=4, grid_side=7,
    ),
    # DK < DV, kernel 3, one KV head for all, an intermediate size that no block divides.
    "narrow_key": ShapeSpec(
        vocab=512, hidden=192, intermediate=200, layers="LF", heads=4, kv_heads=1, head_dim=64,
        nk=3, nv=6, dk=16, dv=48, kernel=3, tied=False, rope_theta=10_000.0,
        vision_depth=3, vision_hidden=72, vision_intermediate=100, vision_heads=3, grid_side=12,
        patch=14,
    ),
    # Five linear to one full and a linear layer at the end, whole heads rotate.
    "mostly_linear": ShapeSpec(
        vocab=421, hidden=64, intermediate=160, layers="LLLLLFL", heads=4, kv_heads=4, head_dim=32,
        nk=2, nv=8, dk=32, dv=16, rotary=1.0, mrope_section=(6, 5, 5),
        vision_depth=1, vision_hidden=32, vision_intermediate=64, vision_heads=1, patch=8,
    ),
    # The true head dims of 0.8B and its position table, one period of layers, prime vocabulary.
    "true_heads": ShapeSpec(
        vocab=1031, hidden=256, intermediate=320, heads=2, kv_heads=1, head_dim=256,
        nk=2, nv=2, dk=128, dv=128, mrope_section=(11, 11, 10),
        vision_hidden=128, vision_intermediate=256, grid_side=48,
    ),
    # Only full attention after one linear layer; NV = 2 NK, untied, kernel 2.
    "mostly_full": ShapeSpec(
        vocab=416, hidden=224, intermediate=256, layers="FFLF", heads=6, kv_heads=3, head_dim=32,
        nk=1, nv=2, dk=32, dv=64, kernel=2, tied=False, mrope_section=(2, 1, 1),
        vision_intermediate=192, grid_side=5,
    ),
}  # fmt: skip

EXPERT_SHAPES: dict[str, ShapeSpec] = {
    # The published proportions in small: a shared expert, a quarter of few experts.
    "experts": ShapeSpec(intermediate=64, experts=8, chosen=2, shared=64, tied=False),
    # An odd number of experts, a wide shared one, a width that no block divides.
    "odd_experts": ShapeSpec(
        vocab=389, hidden=96, intermediate=40, layers="LLFLLF", heads=2, kv_heads=2, head_dim=32,
        nk=4, nv=4, dk=16, dv=16, rotary=0.5, interval_only=True, experts=5, chosen=3, shared=200,
        vision_depth=1, vision_heads=4, grid_side=10, patch=8,
    ),
    # No shared expert, one choice of many, full attention first.
    "one_choice": ShapeSpec(
        vocab=401, hidden=160, intermediate=96, layers="FLFL", heads=2, kv_heads=1, head_dim=256,
        nk=1, nv=4, dk=64, dv=32, mrope_section=(11, 11, 10), experts=24, chosen=1,
        vision_hidden=96, vision_intermediate=160, vision_heads=4, grid_side=7,
    ),
    # Every expert is chosen, so that routing is a plain softmax; narrow experts.
    "all_chosen": ShapeSpec(
        vocab=512, hidden=192, intermediate=32, layers="LF", heads=4, kv_heads=1, head_dim=64,
        nk=3, nv=6, dk=16, dv=48, kernel=3, tied=False, rope_theta=10_000.0, experts=4, chosen=4,
        shared=96, vision_depth=3, vision_hidden=72, vision_intermediate=100, vision_heads=3,
        grid_side=12, patch=14,
    ),
    # The weights of the chosen are left as they are, as the softmax over all experts has them.
    "unnormalised": ShapeSpec(
        vocab=416, hidden=128, intermediate=128, layers="FLLF", heads=4, kv_heads=2, head_dim=32,
        nk=1, nv=2, dk=32, dv=64, kernel=2, mrope_section=(2, 1, 1), experts=16, chosen=6,
        shared=32, normalised=False, vision_intermediate=192, grid_side=5,
    ),
}  # fmt: skip

_PUBLISHED: dict[str, Any] = {
    "vocab": 248320, "head_dim": 256, "dk": 128, "dv": 128, "mrope_section": (11, 11, 10),
    "grid_side": 48, "image_tokens": (64, 16384),
}  # fmt: skip

FULL_SHAPES: dict[str, ShapeSpec] = {
    "0.8b": ShapeSpec(
        hidden=1024, intermediate=3584, layers="LLLF" * 6, heads=8, kv_heads=2, nk=16, nv=16,
        vision_depth=12, vision_hidden=768, vision_intermediate=3072, vision_heads=12, **_PUBLISHED,
    ),
    "35b-a3b": ShapeSpec(
        hidden=2048, intermediate=512, layers="LLLF" * 10, heads=16, kv_heads=2, nk=16, nv=32,
        tied=False, experts=256, chosen=8, shared=512, vision_depth=27, vision_hidden=1152,
        vision_intermediate=4304, vision_heads=16, **_PUBLISHED,
    ),
    "4b": ShapeSpec(
        hidden=2560, intermediate=9216, layers="LLLF" * 8, heads=16, kv_heads=4, nk=16, nv=32,
        vision_depth=24, vision_hidden=1024, vision_intermediate=4096, vision_heads=16,
        **_PUBLISHED,
    ),
}  # fmt: skip


def config(shape: ShapeSpec, *, dtype: str, with_mtp: bool) -> dict[str, Any]:
    """The contents of `config.json`."""
    kind = "Moe" if shape.experts else ""
    return {
        "architectures": [f"Qwen3_5{kind}ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if shape.experts else "qwen3_5",
        "image_token_id": shape.special_id("<|image_pad|>"),
        "video_token_id": shape.special_id("<|video_pad|>"),
        "vision_start_token_id": shape.special_id("<|vision_start|>"),
        "vision_end_token_id": shape.special_id("<|vision_end|>"),
        "tie_word_embeddings": shape.tied,
        "text_config": _text_config(shape, dtype=dtype, with_mtp=with_mtp),
        "vision_config": _vision_config(shape),
    }


def _text_config(shape: ShapeSpec, *, dtype: str, with_mtp: bool) -> dict[str, Any]:
    layers: dict[str, Any] = {"layer_types": shape.layer_types}
    if shape.interval_only:
        layers = {"full_attention_interval": shape.layers.index("F") + 1}
    return {
        "model_type": "qwen3_5_moe_text" if shape.experts else "qwen3_5_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": dtype,
        "eos_token_id": shape.special_id("<|endoftext|>"),
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        **_widths(shape),
        **layers,
        "linear_conv_kernel_dim": shape.kernel,
        "linear_key_head_dim": shape.dk,
        "linear_num_key_heads": shape.nk,
        "linear_num_value_heads": shape.nv,
        "linear_value_head_dim": shape.dv,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1 if with_mtp else 0,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": len(shape.layers),
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocab,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.rotary,
            "mrope_interleaved": True,
            "mrope_section": list(shape.mrope_section),
        },
    }


def _widths(shape: ShapeSpec) -> dict[str, Any]:
    """The feed-forward block, dense or of experts."""
    if not shape.experts:
        return {"intermediate_size": shape.intermediate}
    normalised = {} if shape.normalised else {"norm_topk_prob": False}
    return {
        "moe_intermediate_size": shape.intermediate,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "shared_expert_intermediate_size": shape.shared,
        **normalised,
    }


def _vision_config(shape: ShapeSpec) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5_moe" if shape.experts else "qwen3_5_vision",
        "deepstack_visual_indexes": [],
        "depth": shape.vision_depth,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": shape.vision_hidden,
        "in_channels": 3,
        "intermediate_size": shape.vision_intermediate,
        "num_heads": shape.vision_heads,
        "num_position_embeddings": shape.grid_side**2,
        "out_hidden_size": shape.hidden,
        "patch_size": shape.patch,
        "spatial_merge_size": shape.merge,
        "temporal_patch_size": shape.temporal_patch,
    }
