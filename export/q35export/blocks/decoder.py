"""The decoder's layers, each a token mixer and a feed-forward block with residuals; and what lies
before and behind them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from q35export.blocks.context import Context
from q35export.blocks.full_attention import KeyValue, Positions, full_attention
from q35export.blocks.linear_attention import LinearState, linear_attention
from q35export.blocks.mlp import feed_forward
from q35export.config import TextConfig
from q35export.matrix import EMBEDDING, HEAD, TEXT, Float32, Matrix


def embedding(ctx: Context, config: TextConfig) -> Matrix:
    """The table of token embeddings `[V, H]`, unread."""
    return ctx.matrix(EMBEDDING, config.vocab_size, config.hidden_size)


def final_norm(ctx: Context, config: TextConfig) -> Float32:
    """The weights `[H]` of the norm behind the last layer."""
    return ctx.zero_centred(f"{TEXT}norm.weight", config.hidden_size)


def head(ctx: Context, config: TextConfig) -> Matrix:
    """The matrix `[V, H]` that makes logits where it is not the table of embeddings, unread."""
    return ctx.matrix(HEAD, config.vocab_size, config.hidden_size)


def decoder_layers(
    ctx: Context,
    config: TextConfig,
    hidden: ir.Value,
    states: Sequence[LinearState | KeyValue | None],
    positions: Positions,
    root: str = f"{TEXT}layers",
    first: int = 0,
) -> tuple[ir.Value, list[LinearState | KeyValue]]:
    """Every layer in order over `hidden` `[1, T, H]`: the last hidden states and the new states.

    A state of None is a full-attention layer with an empty cache. `root` is where the checkpoint
    has the layers, `first` the number of the first of them.
    """
    target, width = ctx.target, config.hidden_size
    presents: list[LinearState | KeyValue] = []
    residual = hidden
    update: ir.Value | None = None
    for index, past in enumerate(states, first):
        prefix = f"{root}.{index}"
        with ctx.graph.scope(f"layer_{index}"):
            gamma = ctx.zero_centred(f"{prefix}.input_layernorm.weight", width)
            if update is None:
                normed = target.rms_norm(residual, gamma, config.eps)
            else:
                normed, residual = target.add_rms_norm(update, residual, gamma, config.eps)
            present: LinearState | KeyValue
            if isinstance(past, LinearState):
                update, present = linear_attention(
                    ctx, config, f"{prefix}.linear_attn", normed, past
                )
            else:
                update, present = full_attention(
                    ctx, config, f"{prefix}.self_attn", normed, past, positions
                )
            presents.append(present)
            gamma = ctx.zero_centred(f"{prefix}.post_attention_layernorm.weight", width)
            normed, residual = target.add_rms_norm(update, residual, gamma, config.eps)
            update = feed_forward(ctx, config, f"{prefix}.mlp", normed)
    assert update is not None
    return ctx.graph.op("Add", update, residual), presents
