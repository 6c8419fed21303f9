"""The tensors a Qwen3.5 checkpoint must hold: canonical names and shapes, from the config alone.

Canonical names are those of transformers' `Qwen3_5ForConditionalGeneration` state dict.
"""

from __future__ import annotations

import numpy as np

from q35export.config import ModelConfig, TextConfig, VisionConfig
from q35export.matrix import Float32

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

TEXT = "model.language_model."
VISION = "model.visual."
HEAD = "lm_head.weight"
MTP = "mtp."


def expected_tensors(config: ModelConfig, component: str) -> Shapes:
    """Names and shapes of every tensor that the `component` is built from: the tower's of
    "vision", the further ones of "mtp", the decoder's of any other."""
    if component == "vision":
        return {VISION + name: shape for name, shape in _vision(config.vision).items()}
    if component == "mtp":
        return {MTP + name: shape for name, shape in _mtp(config.text).items()}
    return _text(config.text)


class ShapeSource:
    """A stand-in for a checkpoint that has only shapes: tensors read as zeros.

    For plans, which need every size and no weight.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def shape(self, name: str) -> Shape:
        """The shape of the tensor `name`."""
        return self._shapes[name]

    def has(self, name: str) -> bool:
        """Whether the model has this tensor."""
        return name in self._shapes

    def read(self, name: str) -> Float32:
        """Zeros of the tensor's shape."""
        return np.zeros(self._shapes[name], np.float32)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """Zeros of the slice's shape."""
        return np.zeros((stop - start, *self._shapes[name][1:]), np.float32)


def _text(text: TextConfig) -> Shapes:
    embedding = (text.vocab_size, text.hidden_size)
    shapes: Shapes = {
        f"{TEXT}embed_tokens.weight": embedding,
        f"{TEXT}norm.weight": (text.hidden_size,),
    }
    for index, kind in enumerate(text.layer_types):
        layer = _feed_forward(text)
        layer |= _linear_attention(text) if kind == "linear_attention" else _full_attention(text)
        shapes |= {f"{TEXT}layers.{index}.{name}": shape for name, shape in layer.items()}
    if not text.tied:
        shapes[HEAD] = embedding
    return shapes


def _mtp(text: TextConfig) -> Shapes:
    norm = (text.hidden_size,)
    shapes: Shapes = {
        "pre_fc_norm_embedding.weight": norm,
        "pre_fc_norm_hidden.weight": norm,
        "fc.weight": (text.hidden_size, 2 * text.hidden_size),
        "norm.weight": norm,
    }
    layer = _feed_forward(text) | _full_attention(text)
    return shapes | {f"layers.0.{name}": shape for name, shape in layer.items()}


def _feed_forward(text: TextConfig) -> Shapes:
    hidden, inner = text.hidden_size, text.intermediate_size
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def _linear_attention(text: TextConfig) -> Shapes:
    hidden, heads = text.hidden_size, text.linear_value_heads
    layer: Shapes = {
        "in_proj_qkv.weight": (text.conv_channels, hidden),
        "in_proj_z.weight": (text.value_width, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "conv1d.weight": (text.conv_channels, 1, text.conv_kernel),
        "dt_bias": (heads,),
        "A_log": (heads,),
        "norm.weight": (text.linear_value_dim,),
        "out_proj.weight": (hidden, text.value_width),
    }
    return {f"linear_attn.{name}": shape for name, shape in layer.items()}


def _full_attention(text: TextConfig) -> Shapes:
    hidden, width = text.hidden_size, text.num_heads * text.head_dim
    rows = {
        "q_proj": 2 * width,
        "k_proj": text.num_kv_heads * text.head_dim,
        "v_proj": text.num_kv_heads * text.head_dim,
        "o_proj": hidden,
    }
    layer: Shapes = {
        f"{name}.weight": (count, width if name == "o_proj" else hidden)
        for name, count in rows.items()
    }
    if text.attention_bias:
        layer |= {f"{name}.bias": (count,) for name, count in rows.items()}
    layer |= {"q_norm.weight": (text.head_dim,), "k_norm.weight": (text.head_dim,)}
    return {f"self_attn.{name}": shape for name, shape in layer.items()}


def _vision(vision: VisionConfig) -> Shapes:
    hidden, merged = vision.hidden_size, vision.hidden_size * vision.merge_size**2
    patch = (vision.in_channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size)
    shapes: Shapes = {
        "patch_embed.proj.weight": (hidden, *patch),
        "patch_embed.proj.bias": (hidden,),
        "pos_embed.weight": (vision.num_positions, hidden),
        **_affine("merger.norm", (hidden,)),
        **_affine("merger.linear_fc1", (merged, merged)),
        **_affine("merger.linear_fc2", (vision.out_hidden_size, merged)),
    }
    for index in range(vision.depth):
        block = (
            _affine("norm1", (hidden,))
            | _affine("norm2", (hidden,))
            | _affine("attn.qkv", (3 * hidden, hidden))
            | _affine("attn.proj", (hidden, hidden))
            | _affine("mlp.linear_fc1", (vision.intermediate_size, hidden))
            | _affine("mlp.linear_fc2", (hidden, vision.intermediate_size))
        )
        shapes |= {f"blocks.{index}.{name}": shape for name, shape in block.items()}
    return shapes


def _affine(name: str, weight: Shape) -> Shapes:
    return {f"{name}.weight": weight, f"{name}.bias": weight[:1]}
