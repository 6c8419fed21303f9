"""The optimisers, and the care that the patch embedding needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Optimisers = Sequence[torch.optim.Optimizer]


def optimisers(model: nn.Module, patch_matrix: nn.Parameter, naming: nn.Module) -> Optimisers:
    """Muon for the matrices of the layers and the patch embedding, AdamW for the rest.

    `patch_matrix` is the patch embedding's weight as `[N, 1536]`, sharing its memory.
    """
    matrices, others = [patch_matrix], [*naming.parameters()]
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            matrices.append(parameter)
        elif not name.endswith("patch_embed.proj.weight"):
            others.append(parameter)
    return (
        torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0),
    )


def without_flat(gradient: Tensor) -> Tensor:
    """The patch embedding's gradient `[N, 3, 2, 16, 16]` less its part on patches of one colour.

    On a plain ground the 1,536 inputs of a patch nearly agree: steps in that direction add up
    until patches drown out their positions, so what a filter does to it stays as it began.
    """
    return gradient - gradient.mean((2, 3, 4), keepdim=True)


def step_all(
    trained: Optimisers, model: nn.Module, patch_matrix: nn.Parameter, rate: float
) -> None:
    """One step of all optimisers at the learning rate `rate`; clears the model's gradients."""
    for name, parameter in model.named_parameters():
        if name.endswith("patch_embed.proj.weight") and parameter.grad is not None:
            patch_matrix.grad = without_flat(parameter.grad).flatten(1)
    for optimiser in trained:
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()
    patch_matrix.grad = None
    model.zero_grad(set_to_none=True)
