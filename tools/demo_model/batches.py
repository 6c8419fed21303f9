"""Training batches: pools of conversations, sorted by length and cut to a budget of tokens.

A pool is a pure function of seed, index and `grown`, so training resumes where it stopped.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from .dialogues import Mix, training_conversation
from .pictures import MERGE_SIZE, names_of_tokens, patches
from .tokenizer import Example, encode

POOL = 288


@dataclass(frozen=True)
class Batch:
    """Tensors of one step.

    `ids` and `labels` (-100: not learnt) are `[B, T]`, `pixels [P, 1536]`, `grids [I, 3]`;
    `names` `[3, P / 4]` say what lies under each picture token (-1: not known), `order [P / 4]`
    which picture of its message it belongs to (0 or 1).
    """

    ids: Tensor
    labels: Tensor
    pixels: Tensor | None
    grids: Tensor | None
    names: Tensor | None
    order: Tensor | None


def pool(
    tokenizer: Tokenizer, seed: int, index: int, grown: float, mix: Mix, budget: int
) -> list[Batch]:
    """The batches of one pool in random order."""
    names = [f"train/{seed}/{index}/{number}" for number in range(POOL)]
    examples = sorted(
        (encode(tokenizer, training_conversation(name, grown, mix), name) for name in names),
        key=lambda e: len(e.ids),
    )
    groups: list[list[Example]] = [[]]
    for example in examples:
        if groups[-1] and (len(groups[-1]) + 1) * len(example.ids) > budget:
            groups.append([])
        groups[-1].append(example)
    random.Random(f"order/{seed}/{index}").shuffle(groups)
    return [tensors(group) for group in groups]


def tensors(examples: Sequence[Example]) -> Batch:
    """Pad on the right: causal layers never look there, and the loss leaves it out."""
    longest = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row, example in enumerate(examples):
        values = torch.tensor(example.ids)
        ids[row, : len(values)] = values
        labels[row, : len(values)] = torch.where(torch.tensor(example.learn), values, -100)
    pictures = [picture for example in examples for picture in example.pictures]
    if not pictures:
        return Batch(ids, labels, None, None, None, None)
    seen = [patches(picture) for picture in pictures]
    names = np.concatenate([names_of_tokens(picture) for picture in pictures], axis=1)
    pixels = torch.from_numpy(np.concatenate([values for values, _ in seen]))
    grids = torch.tensor([(1, *grid) for _, grid in seen])
    orders = torch.tensor([order for example in examples for order in example.orders])
    order = orders.repeat_interleave(grids.prod(1) // MERGE_SIZE**2)
    return Batch(ids, labels, pixels, grids, torch.from_numpy(names), order)
