"""The shape of a Qwen3.5 model, read from the checkpoint's `config.json`.

Every width, head count and scale of the exported graphs comes from here; no other module
may hold one as a literal. Defaults are those of transformers' `Qwen3_5Config`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast

from q35chat.errors import CheckpointError, Remedy
from q35chat.json_reader import MOST_COUNT, Fields, read_json
from q35export.safetensors_files import no_checkpoint

LayerType = Literal["linear_attention", "full_attention"]

_MOST_LAYERS: Final = 512
_MOST_WIDTH: Final = 1 << 24
_MOST_HEADS: Final = 1 << 16
_MOST_SIDE: Final = 1024
_LEAST_THETA: Final = 1e-6
_KINDS: Final = ("linear_attention", "full_attention")
_SHOWN: Final = 60
_TEXT_ONLY: Final = ("qwen3_5_text", "qwen3_5_moe_text")
_WITH_EXPERTS: Final = ("qwen3_5_moe", "qwen3_5_moe_text")
_MODELS: Final = ("qwen3_5", "qwen3_5_text", *_WITH_EXPERTS)
_MOST_EXPERTS: Final = 1 << 14
NO_TOKEN: Final = -1
_wrong: Final = partial(CheckpointError, remedy=Remedy.DOWNLOAD_AGAIN)


@dataclass(frozen=True, slots=True)
class Rope:
    """Interleaved multimodal rotary embedding of the decoder.

    `dim` of the head's dimensions rotate; `sections` (temporal, height, width) sum to `dim / 2`.
    """

    theta: float
    dim: int
    sections: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Experts:
    """A feed-forward block of which each token takes a part (mixture of experts).

    A token goes through the `chosen` likeliest of `count` experts of `width`, and with a
    `shared_width` above 0 through one expert that all tokens share. With `normalised` the weights
    of those that are chosen sum to one.
    """

    count: int
    chosen: int
    width: int
    shared_width: int
    normalised: bool


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The hybrid decoder. Names follow `config.json`, shortened where the field has a symbol.

    `intermediate_size` is the width of a dense feed-forward block; with `experts` there is none.
    `mtp_layers` are those of the head that predicts one token more (0: there is no such head);
    `mtp_own_embeddings` tells that it does not share the decoder's.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    experts: Experts | None
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
    """A whole Qwen3.5 model; without `vision` it sees no pictures, and `image_token_id` is no
    token's."""

    text: TextConfig
    vision: VisionConfig | None
    image_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int

    @property
    def tower(self) -> VisionConfig:
        """The vision tower of a model that has one."""
        assert self.vision is not None
        return self.vision

    def without_tower(self) -> ModelConfig:
        """The model as one that sees no pictures."""
        return replace(self, vision=None, image_token_id=NO_TOKEN)


def load_config(folder: Path) -> ModelConfig:
    """Read `config.json` of the checkpoint in `folder`.

    Raises CheckpointError when the file is missing or unreadable, when `model_type` is none of
    `qwen3_5`, `qwen3_5_moe` and their text models, and for values that the exported graphs could
    not honour.
    """
    path = folder / "config.json"
    if not path.exists():
        raise no_checkpoint(folder, "config.json")
    try:
        return parse_config(read_json(path), str(path))
    except ValueError as error:
        raise _wrong(f"cannot read {path}: {error}") from error


def parse_config(raw: object, where: str = "config.json") -> ModelConfig:
    """Build a ModelConfig from a parsed `config.json`, which `where` names in messages.

    Raises CheckpointError.
    """
    fields = Fields(raw, where, _wrong)
    model_type = fields.raw("model_type")
    if model_type not in _MODELS:
        raise CheckpointError(
            f"model_type is {_named(model_type)}, not 'qwen3_5' or 'qwen3_5_moe': only checkpoints "
            "of Qwen3.5, Qwen3.6 and Qwen3.8 can be exported"
        )
    decoder = fields if model_type in _TEXT_ONLY else fields.section("text_config")
    text = _text(decoder, fields, _experts(decoder) if model_type in _WITH_EXPERTS else None)
    config = ModelConfig(
        text=text,
        vision=None,
        image_token_id=fields.whole("image_token_id", 248056, most=MOST_COUNT),
        vision_start_token_id=fields.whole("vision_start_token_id", 248053, most=MOST_COUNT),
        vision_end_token_id=fields.whole("vision_end_token_id", 248054, most=MOST_COUNT),
    )
    if model_type in _TEXT_ONLY or not fields.has("vision_config"):
        config = config.without_tower()
    else:
        vision = _vision(fields.section("vision_config"), text.hidden_size)
        config = replace(config, vision=vision)
    _check(config)
    return config


def _layer_types(fields: Fields) -> tuple[LayerType, ...]:
    layers = fields.whole("num_hidden_layers", 32, least=1, most=_MOST_LAYERS)
    if fields.has("layer_types"):
        named = fields.texts("layer_types")
    else:
        interval = fields.whole("full_attention_interval", 4, least=1, most=_MOST_LAYERS)
        named = tuple(_KINDS[(index + 1) % interval == 0] for index in range(layers))
    unknown = sorted(set(named) - set(_KINDS))
    if unknown:
        raise CheckpointError(f"unknown layer types in config.json: {_named(', '.join(unknown))}")
    if len(named) != layers:
        raise CheckpointError(
            f"layer_types names {len(named)} layers, num_hidden_layers is {layers}"
        )
    return cast("tuple[LayerType, ...]", named)


def _rope(fields: Fields, head_dim: int) -> Rope:
    name = "rope_parameters" if fields.raw("rope_parameters") else "rope_scaling"
    rope = fields.section_or_empty(name)
    kind = rope.raw("rope_type") or rope.raw("type") or "default"
    if kind != "default":
        raise CheckpointError(f"rope_type {_named(kind)} is not supported, only 'default'")
    theta = fields.real("rope_theta", 10000.0, least=_LEAST_THETA)
    share = fields.real("partial_rotary_factor", 0.25, least=0, most=1)
    time, height, width = rope.wholes("mrope_section", (11, 11, 10), most=_MOST_WIDTH)
    return Rope(
        theta=rope.real("rope_theta", theta, least=_LEAST_THETA),
        dim=int(head_dim * rope.real("partial_rotary_factor", share, least=0, most=1)),
        sections=(time, height, width),
    )


def _experts(fields: Fields) -> Experts:
    """The widths are those of transformers' `Qwen3_5MoeTextConfig`. It always normalises; the flag
    is Qwen3-Next's, whose runtimes read it for this model, too."""
    return Experts(
        count=fields.whole("num_experts", 256, least=1, most=_MOST_EXPERTS),
        chosen=fields.whole("num_experts_per_tok", 8, least=1, most=_MOST_EXPERTS),
        width=_width(fields, "moe_intermediate_size", 512),
        shared_width=fields.whole("shared_expert_intermediate_size", 512, most=_MOST_WIDTH),
        normalised=fields.flag("norm_topk_prob", default=True),
    )


def _text(fields: Fields, model: Fields, experts: Experts | None) -> TextConfig:
    """`model` is what surrounds the decoder's fields: its word on tied embeddings wins."""
    head_dim = _width(fields, "head_dim", 256)
    _activation(fields, "silu", "hidden_act")
    return TextConfig(
        vocab_size=_width(fields, "vocab_size", 248320),
        hidden_size=_width(fields, "hidden_size", 4096),
        intermediate_size=0 if experts else _width(fields, "intermediate_size", 12288),
        experts=experts,
        layer_types=_layer_types(fields),
        num_heads=_heads(fields, "num_attention_heads", 16),
        num_kv_heads=_heads(fields, "num_key_value_heads", 4),
        head_dim=head_dim,
        attention_bias=fields.flag("attention_bias", default=False),
        linear_key_heads=_heads(fields, "linear_num_key_heads", 16),
        linear_value_heads=_heads(fields, "linear_num_value_heads", 32),
        linear_key_dim=_width(fields, "linear_key_head_dim", 128),
        linear_value_dim=_width(fields, "linear_value_head_dim", 128),
        conv_kernel=_side(fields, "linear_conv_kernel_dim", 4),
        eps=fields.real("rms_norm_eps", 1e-6, least=0, most=1),
        rope=_rope(fields, head_dim),
        tied=model.flag(
            "tie_word_embeddings", default=fields.flag("tie_word_embeddings", default=False)
        ),
        max_positions=fields.whole("max_position_embeddings", 32768, least=1, most=MOST_COUNT),
        mtp_layers=fields.whole("mtp_num_hidden_layers", 0, most=_MOST_LAYERS),
        mtp_own_embeddings=fields.flag("mtp_use_dedicated_embeddings", default=False),
    )


def _vision(fields: Fields, hidden_size: int) -> VisionConfig:
    _activation(fields, "gelu_pytorch_tanh", "vision hidden_act")
    rope = fields.section_or_empty("rope_parameters")
    vision = VisionConfig(
        depth=fields.whole("depth", 27, least=1, most=_MOST_LAYERS),
        hidden_size=_width(fields, "hidden_size", 1152),
        intermediate_size=_width(fields, "intermediate_size", 4304),
        num_heads=_heads(fields, "num_heads", 16),
        in_channels=_side(fields, "in_channels", 3),
        patch_size=_side(fields, "patch_size", 16),
        temporal_patch_size=_side(fields, "temporal_patch_size", 2),
        merge_size=_side(fields, "spatial_merge_size", 2),
        out_hidden_size=_width(fields, "out_hidden_size", 3584),
        num_positions=_width(fields, "num_position_embeddings", 2304),
        rope_theta=rope.real("rope_theta", 10000.0, least=_LEAST_THETA),
    )
    if vision.out_hidden_size != hidden_size:
        raise CheckpointError(
            f"vision out_hidden_size {vision.out_hidden_size} differs from "
            f"the decoder's hidden_size {hidden_size}"
        )
    return vision


def _activation(fields: Fields, wanted: str, what: str) -> None:
    found = fields.raw("hidden_act")
    if found not in (None, wanted):
        raise CheckpointError(f"{what} {_named(found)} is not supported, only {wanted!r}")


def _width(fields: Fields, name: str, default: int) -> int:
    return fields.whole(name, default, least=1, most=_MOST_WIDTH)


def _heads(fields: Fields, name: str, default: int) -> int:
    return fields.whole(name, default, least=1, most=_MOST_HEADS)


def _side(fields: Fields, name: str, default: int) -> int:
    return fields.whole(name, default, least=1, most=_MOST_SIDE)


def _named(value: object) -> str:
    """What stands in a file, at most a line of it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check(config: ModelConfig) -> None:
    text, vision = config.text, config.vision
    _divides("num_attention_heads", text.num_heads, "num_key_value_heads", text.num_kv_heads)
    _divides(
        "linear_num_value_heads",
        text.linear_value_heads,
        "linear_num_key_heads",
        text.linear_key_heads,
    )
    if vision is not None:
        _divides("vision hidden_size", vision.hidden_size, "num_heads", vision.num_heads)
        if vision.head_dim % 4:
            raise CheckpointError(f"vision head_dim {vision.head_dim} is not a multiple of 4")
        if vision.grid_side**2 != vision.num_positions:
            raise CheckpointError(f"num_position_embeddings {vision.num_positions} is not a square")
    if text.experts and text.experts.chosen > text.experts.count:
        raise CheckpointError(
            f"num_experts_per_tok {text.experts.chosen} is more than num_experts "
            f"{text.experts.count}"
        )
    rope = text.rope
    if rope.dim % 2 or sum(rope.sections) != rope.dim // 2:
        raise CheckpointError(
            f"mrope_section {list(rope.sections)} does not sum to half of "
            f"the {rope.dim} rotating dimensions"
        )


def _divides(whole_name: str, whole: int, part_name: str, part: int) -> None:
    if whole % part:
        raise CheckpointError(f"{whole_name} {whole} is not a multiple of {part_name} {part}")
