"""Weights as int4 in blocks of 32 along K, for the last part of training.

Covers every linear projection but the tiny `in_proj_a` and `in_proj_b`; norms, convolution and
the embedding lookup stay in float.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 32
KEPT_IN_FLOAT = ("in_proj_a", "in_proj_b")


def rounded(weight: Tensor, mode: str) -> Tensor:
    """The weight `[N, K]` after a round trip through integers, one scale per block of 32 along K.

    "int4" scales by the largest magnitude over 7; "int4-signed" lets the value of largest
    magnitude be -8. Gradients pass straight through.
    """
    if mode == "float":
        return weight
    blocks = weight.detach().reshape(weight.shape[0], -1, BLOCK)
    low, high = -8, 7
    if mode == "int4-signed":
        peak = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
        scale = peak / low
    else:
        scale = blocks.abs().amax(-1, keepdim=True) / high
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    whole = (blocks / scale).round().clamp(low, high) * scale
    return weight + (whole.reshape(weight.shape) - weight.detach())


class Quantiser:
    """Replaces the forward of a model's projections: `mode` decides how weights are read."""

    def __init__(self, model: nn.Module) -> None:
        self.mode = "float"
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] not in KEPT_IN_FLOAT:
                module.forward = partial(self._linear, module)
            elif name.endswith("patch_embed"):
                module.forward = partial(self._patch_embed, module.proj)

    def _linear(self, module: nn.Linear, x: Tensor) -> Tensor:
        return functional.linear(x, rounded(module.weight, self.mode), module.bias)

    def _patch_embed(self, convolution: nn.Conv3d, x: Tensor) -> Tensor:
        """The patch convolution as the matrix product that it is: stride equals kernel."""
        weight = convolution.weight.reshape(convolution.out_channels, -1)
        x = x.reshape(-1, weight.shape[1])
        return functional.linear(x, rounded(weight, self.mode), convolution.bias)

    @contextlib.contextmanager
    def reading(self, mode: str) -> Iterator[None]:
        """Use `mode` inside the block."""
        before, self.mode = self.mode, mode
        try:
            yield
        finally:
            self.mode = before
