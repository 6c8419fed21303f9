"""transformers' answers for the golden samples. Needs torch; only parity tests import it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from q35export.verify.reference import Reference
from tests.support.checkpoints import make_checkpoint
from tests.support.golden import (
    SAMPLES,
    TOKENS,
    Floats,
    Golden,
    GoldenCase,
    embedding_numbers,
)

LEAST_MARGIN = 1e-3  # a hundred times what two correct FP32 programs differ by
LEAST_VARIETY = 16  # different tokens of 64: fewer would not notice a wrong state
SEEDS = range(1, 30)


def answer(reference: Reference, shape: str, seed: int) -> Golden:
    """Run every sample on the loaded checkpoint of `shape` and `seed`."""
    cases, numbers = [], dict[str, Floats]()
    for sample in SAMPLES:
        prompt = reference.encode(sample)
        greedy = reference.greedy(prompt, TOKENS)
        case = GoldenCase(
            sample=sample.name,
            prompt_ids=tuple(prompt.ids.tolist()),
            grids=tuple((picture.grid_h, picture.grid_w) for picture in prompt.pictures),
            positions=tuple(tuple(row) for row in reference.positions(prompt).tolist()),
            tokens=tuple(greedy.tokens.tolist()),
            least_margin=round(float(greedy.margins().min()), 5),
        )
        cases.append(case)
        numbers[f"{sample.name} logits"] = greedy.logits[[0, -1]].astype(np.float32)
        for number, picture in enumerate(prompt.pictures):
            numbers |= embedding_numbers(sample.name, number, reference.vision(picture))
    return Golden(shape, seed, tuple(cases), numbers)


def fresh_golden(shape: str, folder: Path) -> Golden:
    """The first seed whose answers are clear (no near-ties) and varied."""
    for seed in SEEDS:
        checkpoint = make_checkpoint(folder / str(seed), shape, seed=seed)
        golden = answer(Reference(checkpoint, threads=1), shape, seed)
        if is_clear(golden):
            return golden
    raise ValueError(f"no seed in {SEEDS} gives {shape} clear and varied answers")


def is_clear(golden: Golden) -> bool:
    """Whether rounding cannot change a token, and tokens do change."""
    return all(
        case.least_margin > LEAST_MARGIN and len(set(case.tokens)) >= LEAST_VARIETY
        for case in golden.cases
    )
