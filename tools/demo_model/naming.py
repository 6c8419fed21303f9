"""Lessons beside the language: to name what lies under each picture token, and which picture it is.

A first stage trains the vision tower alone, on pictures without any text, with linear heads that
are never shipped; the heads then go along with the language training. Without this the tower learns
colours in minutes and places in a while, but forms hardly at all: sentences tell it too little.
In the language training one more head asks, after the first layers of the decoder, whether a
token's picture is the first or the second of its message.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3_5ForConditionalGeneration

from . import pictures as pictures_of_cells
from . import wider_pictures
from .optimise import optimisers, step_all
from .pictures import COLOURS, FORMS, names_of_tokens, patches

HEADS = {"form": 1 + len(FORMS), "colour": 1 + len(COLOURS), "place": 1 + 9}
IMPORTANCE = {"form": 2.0, "colour": 1.0, "place": 1.0}


class Naming:
    """Linear heads that name form, colour and place under a picture token; 0 stands for none."""

    def __init__(self, width: int) -> None:
        self.heads = nn.ModuleDict({name: nn.Linear(width, size) for name, size in HEADS.items()})
        self.heads["order"] = nn.Linear(width, 2)

    def order_loss(self, hidden: Tensor, order: Tensor) -> Tensor:
        """The loss of telling pictures of a message apart: `hidden [T, width]`, `order [T]`."""
        return functional.cross_entropy(self.heads["order"](hidden).float(), order)

    def loss(self, features: Tensor, names: Tensor) -> Tensor:
        """The loss of naming.

        `features [T, width]`, `names [3, T]` in the order of `HEADS`, -1 where not known. Tokens
        without a shape count a tenth.
        """
        loss = features.new_zeros(())
        if not (names >= 0).any():
            return loss
        for row, (name, size) in enumerate(HEADS.items()):
            weight = torch.ones(size)
            weight[0] = 0.1
            said = self.heads[name](features).float()
            part = functional.cross_entropy(said, names[row], weight, ignore_index=-1)
            loss = loss + IMPORTANCE[name] * part
        return loss

    def right(self, features: Tensor, names: Tensor) -> float:
        """Share of the tokens with a shape whose form is named rightly."""
        here = names[0] > 0
        return float(
            (self.heads["form"](features[here]).argmax(-1) == names[0][here]).float().mean()
        )


def learn_to_see(
    model: Qwen3_5ForConditionalGeneration,
    naming: Naming,
    seed: int,
    steps: int,
    peak: float,
    at_once: int,
    fixed: int = 0,
) -> None:
    """The first stage: `steps` steps of `at_once` pictures on the tower alone, the rate falling in
    the second half.

    In the first `fixed` steps only the heads learn, what a tower sees that has been trained.
    """
    tower = model.model.visual
    patch_matrix = nn.Parameter(tower.patch_embed.proj.weight.data.flatten(1))
    trained = optimisers(tower, patch_matrix, naming.heads)
    for step in range(steps):
        pixels, grids, names = picture_batch(random.Random(f"train/sight/{seed}/{step}"), at_once)
        with torch.set_grad_enabled(step >= fixed):
            features = tower(pixels, grid_thw=grids).pooler_output
        loss = naming.loss(features, names)
        loss.backward()
        step_all(
            trained, tower, patch_matrix, peak * min(1.0, (step + 1) / 20, 2 * (1 - step / steps))
        )
        naming.heads.zero_grad(set_to_none=True)
        if step % 20 == 0:
            right = naming.right(features.detach(), names)
            print(
                f"seeing {step:4d} of {steps}  loss {loss.item():.3f}  forms {right:.0%}",
                flush=True,
            )


def picture_batch(rng: random.Random, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Patches `[P, 1536]`, grids `[count, 3]` and names `[3, P / 4]` of random pictures."""
    pictures = []
    for number in range(count):
        source = wider_pictures if number % 5 < 4 else pictures_of_cells
        pictures.append(source.draw(source.random_scene(rng, rng.choice((1, 2, 3, 3, 4))), rng))
    seen = [patches(picture) for picture in pictures]
    names = np.concatenate([names_of_tokens(picture) for picture in pictures], axis=1)
    pixels = torch.from_numpy(np.concatenate([values for values, _ in seen]))
    return pixels, torch.tensor([(1, *grid) for _, grid in seen]), torch.from_numpy(names)
