"""The shape of a Qwen3.5 model, read from the checkpoint's `config.json`.

Every width, head count and scale of the exported graphs comes from here; no other module
may hold one as a literal. Defaults are those of transformers' `Qwen3_5Config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from q35chat.errors import CheckpointError

LayerType = Literal["linear_attention", "full_attention"]
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rope:
    """Interleaved multimodal rotary embedding of the decoder.

    `dim` of the head's dimensions rotate; `sections` (temporal, height, width) sum to `dim / 2`.
    """

    theta: float
    dim: int
    sections: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The hybrid decoder. Names follow `config.json`, shortened where the field has a symbol.

    `mtp_layers` are those of the head that predicts one token more (0: there is no such head);
    `mtp_own_embeddings` tells that it does not share the decoder's.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[LayerType, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    attention_bias: bool
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int
    eps: float
    rope: Rope
    tied: bool
    max_positions: int
    mtp_layers: int
    mtp_own_embeddings: bool

    @property
    def key_width(self) -> int:
        """Channels of all linear-attention key (or query) heads, `NK * DK`."""
        return self.linear_key_heads * self.linear_key_dim

    @property
    def value_width(self) -> int:
        """Channels of all linear-attention value heads, `NV * DV`."""
        return self.linear_value_heads * self.linear_value_dim

    @property
    def conv_channels(self) -> int:
        """Channels through the causal convolution, `2 * NK * DK + NV * DV`."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision tower."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    out_hidden_size: int
    num_positions: int
    rope_theta: float

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def patch_width(self) -> int:
        """Values of one flattened patch: channels x frames x height x width."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def grid_side(self) -> int:
        """Side of the square table of learned positions."""
        return int(self.num_positions**0.5)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A whole Qwen3.5 model."""

    text: TextConfig
    vision: VisionConfig
    image_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int


def load_config(folder: Path) -> ModelConfig:
    """Read `config.json` of the checkpoint in `folder`.

    Raises CheckpointError when the file is missing or unreadable, when `model_type` is not
    `qwen3_5`, and for values that the exported graphs could not honour.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} holds no config.json: give the folder of a Qwen3.5 checkpoint"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return parse_config(raw)


def parse_config(raw: Json) -> ModelConfig:
    """Build a ModelConfig from a parsed `config.json`; raises CheckpointError."""
    model_type = raw.get("model_type")
    if model_type != "qwen3_5":
        raise CheckpointError(
            f"model_type is {model_type!r}, not 'qwen3_5': only Qwen3.5 checkpoints can be exported"
        )
    try:
        text = _text(_section(raw, "text_config"), tied=raw.get("tie_word_embeddings"))
        config = ModelConfig(
            text=text,
            vision=_vision(_section(raw, "vision_config"), text.hidden_size),
            image_token_id=int(raw.get("image_token_id", 248056)),
            vision_start_token_id=int(raw.get("vision_start_token_id", 248053)),
            vision_end_token_id=int(raw.get("vision_end_token_id", 248054)),
        )
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"config.json has a value of the wrong kind: {error}") from error
    _check(config)
    return config


def _section(raw: Json, name: str) -> Json:
    section = raw.get(name)
    if not isinstance(section, dict):
        raise CheckpointError(f"config.json has no {name}: a text-only Qwen3.5 is not supported")
    return section


def _layer_types(raw: Json) -> tuple[LayerType, ...]:
    layers = int(raw.get("num_hidden_layers", 32))
    named = raw.get("layer_types")
    if named is None:
        interval = int(raw.get("full_attention_interval", 4))
        named = [
            "full_attention" if (index + 1) % interval == 0 else "linear_attention"
            for index in range(layers)
        ]
    unknown = sorted(set(named) - {"linear_attention", "full_attention"})
    if unknown:
        raise CheckpointError(f"unknown layer types in config.json: {', '.join(unknown)}")
    if len(named) != layers:
        raise CheckpointError(
            f"layer_types names {len(named)} layers, num_hidden_layers is {layers}"
        )
    return tuple(cast("list[LayerType]", named))


def _rope(raw: Json, head_dim: int) -> Rope:
    rope: dict[str, Any] = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise CheckpointError(f"rope_type {kind!r} is not supported, only 'default'")
    factor: Any = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 0.25))
    theta: Any = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    sections = tuple(int(part) for part in rope.get("mrope_section", (11, 11, 10)))
    if len(sections) != 3:
        raise CheckpointError(f"mrope_section has {len(sections)} parts, needs 3")
    return Rope(
        theta=float(theta),
        dim=int(head_dim * float(factor)),
        sections=(sections[0], sections[1], sections[2]),
    )


def _text(raw: Json, tied: object) -> TextConfig:
    head_dim = int(raw.get("head_dim", 256))
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act {raw['hidden_act']!r} is not supported, only 'silu'")
    return TextConfig(
        vocab_size=int(raw.get("vocab_size", 248320)),
        hidden_size=int(raw.get("hidden_size", 4096)),
        intermediate_size=int(raw.get("intermediate_size", 12288)),
        layer_types=_layer_types(raw),
        num_heads=int(raw.get("num_attention_heads", 16)),
        num_kv_heads=int(raw.get("num_key_value_heads", 4)),
        head_dim=head_dim,
        attention_bias=bool(raw.get("attention_bias", False)),
        linear_key_heads=int(raw.get("linear_num_key_heads", 16)),
        linear_value_heads=int(raw.get("linear_num_value_heads", 32)),
        linear_key_dim=int(raw.get("linear_key_head_dim", 128)),
        linear_value_dim=int(raw.get("linear_value_head_dim", 128)),
        conv_kernel=int(raw.get("linear_conv_kernel_dim", 4)),
        eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw, head_dim),
        tied=bool(raw.get("tie_word_embeddings", False) if tied is None else tied),
        max_positions=int(raw.get("max_position_embeddings", 32768)),
        mtp_layers=int(raw.get("mtp_num_hidden_layers", 0)),
        mtp_own_embeddings=bool(raw.get("mtp_use_dedicated_embeddings", False)),
    )


def _vision(raw: Json, hidden_size: int) -> VisionConfig:
    activation = raw.get("hidden_act", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise CheckpointError(f"vision hidden_act {activation!r} is not supported")
    rope = raw.get("rope_parameters") or {}
    vision = VisionConfig(
        depth=int(raw.get("depth", 27)),
        hidden_size=int(raw.get("hidden_size", 1152)),
        intermediate_size=int(raw.get("intermediate_size", 4304)),
        num_heads=int(raw.get("num_heads", 16)),
        in_channels=int(raw.get("in_channels", 3)),
        patch_size=int(raw.get("patch_size", 16)),
        temporal_patch_size=int(raw.get("temporal_patch_size", 2)),
        merge_size=int(raw.get("spatial_merge_size", 2)),
        out_hidden_size=int(raw.get("out_hidden_size", 3584)),
        num_positions=int(raw.get("num_position_embeddings", 2304)),
        rope_theta=float(rope.get("rope_theta", 10000.0)),
    )
    if vision.out_hidden_size != hidden_size:
        raise CheckpointError(
            f"vision out_hidden_size {vision.out_hidden_size} differs from "
            f"the decoder's hidden_size {hidden_size}"
        )
    return vision


def _check(config: ModelConfig) -> None:
    text, vision = config.text, config.vision
    _divides("num_attention_heads", text.num_heads, "num_key_value_heads", text.num_kv_heads)
    _divides(
        "linear_num_value_heads",
        text.linear_value_heads,
        "linear_num_key_heads",
        text.linear_key_heads,
    )
    _divides("vision hidden_size", vision.hidden_size, "num_heads", vision.num_heads)
    if vision.head_dim % 4:
        raise CheckpointError(f"vision head_dim {vision.head_dim} is not a multiple of 4")
    if vision.grid_side**2 != vision.num_positions:
        raise CheckpointError(f"num_position_embeddings {vision.num_positions} is not a square")
    rope = text.rope
    if rope.dim % 2 or sum(rope.sections) != rope.dim // 2:
        raise CheckpointError(
            f"mrope_section {list(rope.sections)} does not sum to half of "
            f"the {rope.dim} rotating dimensions"
        )


def _divides(whole_name: str, whole: int, part_name: str, part: int) -> None:
    if part <= 0 or whole <= 0 or whole % part:
        raise CheckpointError(f"{whole_name} {whole} is not a multiple of {part_name} {part}")
