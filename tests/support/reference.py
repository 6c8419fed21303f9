"""transformers' answers for the golden samples. Needs torch; only parity tests import it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from q35export.verify.reference import EncodedPrompt, Encoder, Int64, Reference
from q35export.verify.samples import Sample
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


class LiveReference(Reference):
    """transformers' model with its own prompts and positions."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        super().__init__(folder, threads=threads)
        self._encoder = Encoder(folder)

    def encode(self, sample: Sample) -> EncodedPrompt:
        """The sample as the checkpoint reads it."""
        return self._encoder.encode(sample)

    def positions(self, prompt: EncodedPrompt) -> Int64:
        """mRoPE positions [3, T]."""
        if not prompt.pictures:
            return np.tile(np.arange(len(prompt.ids)), (3, 1))
        inputs = self._inputs(prompt)
        positions, _ = self.model.model.get_rope_index(
            inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            image_grid_thw=inputs["image_grid_thw"],
        )
        return np.asarray(positions[:, 0].numpy(), np.int64)


def answer(reference: LiveReference, shape: str, seed: int) -> Golden:
    """Run every sample on the loaded checkpoint of `shape` and `seed`."""
    cases, numbers = [], dict[str, Floats]()
    for sample in SAMPLES:
        prompt = reference.encode(sample)
        greedy = reference.greedy(prompt, TOKENS)
        second, first = np.partition(greedy.logits, -2, axis=-1)[:, -2:].T
        case = GoldenCase(
            sample=sample.name,
            prompt_ids=tuple(prompt.ids.tolist()),
            grids=tuple((picture.grid_h, picture.grid_w) for picture in prompt.pictures),
            positions=tuple(tuple(row) for row in reference.positions(prompt).tolist()),
            tokens=tuple(greedy.tokens.tolist()),
            least_margin=round(float((first - second).min()), 5),
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
        golden = answer(LiveReference(checkpoint, threads=1), shape, seed)
        if is_clear(golden):
            return golden
    raise ValueError(f"no seed in {SEEDS} gives {shape} clear and varied answers")


def is_clear(golden: Golden) -> bool:
    """Whether rounding cannot change a token, and tokens do change."""
    return all(
        case.least_margin > LEAST_MARGIN and len(set(case.tokens)) >= LEAST_VARIETY
        for case in golden.cases
    )
