"""Runs a bundle and its checkpoint side by side over the samples, row by row; owns no maths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from q35chat.bundle.bundle import Bundle
from q35export.calibration.rotation import folded
from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.request import W8A8
from q35export.verify.candidate import AscendCandidate, Candidate, exact_copy
from q35export.verify.metrics import GRAPH, RUNNING, WEIGHTS, Limits, difference
from q35export.verify.reference import EncodedPrompt, Encoder, Float32, Reference
from q35export.verify.report import ComparisonKind, Report, TensorRow, TokenRow
from q35export.verify.requirements import (
    Note,
    Prompts,
    check_graphs,
    check_memory,
    check_sight,
    fitting,
    sees,
)
from q35export.verify.samples import SAMPLES
from q35export.verify.stored_weights import StoredTensor, is_turned, stored_weights

TOKENS = 32
_STATES = ("conv_", "recurrent_", "key_", "value_")


def verify(
    bundle: Path,
    model: Path,
    *,
    tokens: int = TOKENS,
    threads: int | None = None,
    note: Note = lambda _: None,
) -> Report:
    """Compare the bundle in folder `bundle` with the checkpoint in folder `model`.

    `tokens` greedy choices are compared for each sample that fits the bundle's capacity; `note` is
    told what is going on and what is left out. Of a model that sees no pictures the samples with
    pictures are left out. Raises TorchMissingError, NotComparableError,
    BundleError or CheckpointError.
    """
    opened = Bundle.open(bundle)
    check_graphs(opened)
    config, _ = Checkpoint.open(model).fit(load_config(model))
    check_sight(opened, config, model)
    pictures, precision = sees(opened), opened.manifest.precision
    on_npu = opened.manifest.target == "ascend-310p"
    is_quantised = precision == W8A8 if on_npu else precision != "fp32"
    check_memory(opened, config, opened=2 if is_quantised else 1)
    encoder = Encoder(model, pictures=pictures)
    samples = [sample for sample in SAMPLES if pictures or not sample.drawings]
    prompts = [(sample, encoder.encode(sample)) for sample in samples]
    rows = Rows(fitting(prompts, opened, tokens, note), tokens, note)
    if "mtp" in opened.manifest.graphs:
        note("the head for guessing tokens is not compared: transformers has none")
    note("loading the checkpoint into transformers")
    reference = Reference(model, threads=threads, pictures=pictures)
    if on_npu and is_quantised:
        _compare_in_int8(rows, reference, opened, threads, config)
    elif on_npu:
        _compare_on_npu(rows, reference, opened, threads)
    elif is_quantised:
        _compare_quantised(rows, reference, opened, threads, config)
    else:
        _compare_exact(rows, reference, opened, threads)
    return Report(bundle.name, precision, tuple(rows.tensors), tuple(rows.tokens))


def _compare_on_npu(rows: Rows, reference: Reference, bundle: Bundle, threads: int | None) -> None:
    """Tokens are not required: in FP16 a near tie may fall either way."""
    candidate = AscendCandidate(bundle, threads=threads)
    rows.compare(reference, [Compared("graph", candidate, GRAPH, every=True)])
    candidate.close()


def _compare_in_int8(
    rows: Rows, reference: Reference, bundle: Bundle, threads: int | None, config: ModelConfig
) -> None:
    """As `_compare_quantised`; no tokens are required, as in FP16."""
    running = AscendCandidate(bundle, threads=threads)
    rows.compare(reference, [Compared("quantisation", running, None)])
    reference.untie()
    _load_stored(rows, reference, bundle, config)
    exact = AscendCandidate(bundle, threads=threads, rounds_inputs=False)
    sides = [
        Compared("graph", exact, GRAPH, every=True),
        Compared("running", running, RUNNING),
    ]
    rows.compare(reference, sides)
    exact.close()
    running.close()


def _load_stored(rows: Rows, reference: Reference, bundle: Bundle, config: ModelConfig) -> None:
    """Put the weights that the bundle stores into the reference, and compare each."""
    if is_turned(bundle):
        for name, values in folded(config.text, reference.weight):
            reference.load({name: values})
    for name, tensor in stored_weights(bundle, config):
        rows.compare_weight(reference, name, tensor)
        reference.load({name: tensor.values})
        del tensor  # before the next is read


def _compare_exact(rows: Rows, reference: Reference, bundle: Bundle, threads: int | None) -> None:
    candidate = Candidate(bundle, threads=threads)
    rows.compare(reference, [Compared("graph", candidate, GRAPH, every=True, exact_tokens=True)])
    candidate.close()


def _compare_quantised(
    rows: Rows, reference: Reference, bundle: Bundle, threads: int | None, config: ModelConfig
) -> None:
    """First with the checkpoint's weights, then with those that the bundle stores, which take
    their places in the reference one by one."""
    running = Candidate(bundle, threads=threads)
    rows.compare(reference, [Compared("quantisation", running, None)])
    _load_stored(rows, reference, bundle, config)
    with exact_copy(bundle) as copy:
        exact = Candidate(copy, threads=threads)
        sides = [
            Compared("graph", exact, GRAPH, every=True, exact_tokens=True),
            Compared("running", running, RUNNING),
        ]
        rows.compare(reference, sides)
        exact.close()
    running.close()


@dataclass(frozen=True, slots=True)
class Compared:
    """A bundle in a comparison.

    `limits` hold for logits and embeddings, or for `every` tensor; None limits nothing. With
    `exact_tokens` every greedy choice must be the reference's.
    """

    comparison: ComparisonKind
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

    def compare(self, reference: Reference, sides: Sequence[Compared]) -> None:
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


def _tensors(
    model: Reference | Candidate | AscendCandidate, prompt: EncodedPrompt
) -> dict[str, Float32]:
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
