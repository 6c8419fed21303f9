"""Collects what sides of a comparison say, row by row; owns no order and no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from q35export.verify.ascend_candidate import AscendCandidate
from q35export.verify.candidate import Candidate
from q35export.verify.limits import WEIGHTS, Limits
from q35export.verify.metrics import difference
from q35export.verify.reference import Float32, Prompt, Reference
from q35export.verify.report import Comparison, TensorRow, TokenRow
from q35export.verify.requirements import Note, Prompts
from q35export.verify.stored_weights import StoredTensor

_STATES = ("conv_", "recurrent_", "key_", "value_")


@dataclass(frozen=True, slots=True)
class Side:
    """A bundle in a comparison.

    `limits` hold for logits and embeddings, or for `every` tensor; None limits nothing. With
    `exact_tokens` every greedy choice must be the reference's.
    """

    comparison: Comparison
    candidate: Candidate | AscendCandidate
    limits: Limits | None
    every: bool = False
    exact_tokens: bool = False

    def limits_of(self, tensor: str) -> Limits | None:
        """The limits of a tensor, by its name."""
        return self.limits if self.every or not tensor.startswith(_STATES) else None


class Rows:
    """Collects the rows of one comparison after the other."""

    def __init__(self, prompts: Prompts, count: int, note: Note) -> None:
        self.tensors: list[TensorRow] = []
        self.tokens: list[TokenRow] = []
        self._prompts = prompts
        self._count = count
        self._note = note

    def compare_weight(self, reference: Reference, name: str, tensor: StoredTensor) -> None:
        """What rounding did to the matrix `name`."""
        wanted = reference.weight(name)
        found = difference(tensor.values.reshape(wanted.shape), wanted)
        label = f"int{tensor.bits}_{name.removeprefix('model.').removesuffix('.weight')}"
        self.tensors.append(TensorRow("weights", "", label, found, WEIGHTS[tensor.bits]))

    def compare(self, reference: Reference, sides: Sequence[Side]) -> None:
        """Every side with the reference, which runs once for all."""
        for sample, prompt in self._prompts:
            self._note(f"comparing {', '.join(side.comparison for side in sides)}: {sample.name}")
            wanted = _tensors(reference, prompt)
            chosen = reference.greedy(prompt, self._count).tokens
            for side in sides:
                found = _tensors(side.candidate, prompt)
                for name, values in wanted.items():
                    measured = difference(aligned(found[name], values), values)
                    row = TensorRow(
                        side.comparison, sample.name, name, measured, side.limits_of(name)
                    )
                    self.tensors.append(row)
                followed = side.candidate.follow(prompt, chosen).argmax(-1)
                equal = int((followed == chosen).sum())
                required = self._count if side.exact_tokens else 0
                self.tokens.append(
                    TokenRow(side.comparison, sample.name, equal, self._count, required)
                )


def _tensors(model: Reference | Candidate | AscendCandidate, prompt: Prompt) -> dict[str, Float32]:
    """All that a prompt produces, by name."""
    pictures = {
        f"picture_{number}": model.vision(picture)
        for number, picture in enumerate(prompt.pictures, start=1)
    }
    prefilled = model.prefill(prompt)
    return {**pictures, "logits": prefilled.logits, **prefilled.states}


def aligned(found: Float32, wanted: Float32) -> Float32:
    """`found` with its axes as in `wanted`: a convolution state may have its channels last."""
    return found if found.shape == wanted.shape else np.swapaxes(found, -1, -2)
