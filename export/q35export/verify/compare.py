"""Runs a bundle and its checkpoint side by side over the samples; owns the order, no maths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil

from q35chat.bundle import Bundle
from q35chat.errors import BundleError, Q35Error
from q35export.config import ModelConfig, load_config
from q35export.tensors import expected_tensors
from q35export.verify.ascend_candidate import COMPONENTS as ASCEND_COMPONENTS
from q35export.verify.ascend_candidate import AscendCandidate
from q35export.verify.candidate import Candidate
from q35export.verify.exact_copy import exact_copy
from q35export.verify.limits import GRAPH, QUANTISED, WEIGHTS, Limits
from q35export.verify.metrics import difference
from q35export.verify.reference import Float32, Prompt, Reference
from q35export.verify.report import Comparison, Report, TensorRow, TokenRow
from q35export.verify.samples import SAMPLES, Sample
from q35export.verify.stored_weights import StoredTensor, stored_weights

TOKENS = 32
_COMPONENTS = {"cpu": ("text", "vision"), "ascend-310p": ASCEND_COMPONENTS}

Note = Callable[[str], None]


class NotEnoughMemoryError(Q35Error):
    """The checkpoint does not fit into memory in FP32."""


def verify(
    bundle: Path,
    model: Path,
    *,
    tokens: int = TOKENS,
    threads: int | None = None,
    note: Note = lambda _: None,
) -> Report:
    """Compare the bundle in folder `bundle` with the checkpoint in folder `model`.

    `tokens` greedy choices are compared for each sample; `note` is told what is going on. Raises
    TorchMissingError, NotEnoughMemoryError, BundleError or CheckpointError.
    """
    opened, config = Bundle.open(bundle), load_config(model)
    components = _COMPONENTS.get(opened.manifest.target, ())
    if missing := [name for name in components if name not in opened.manifest.graphs]:
        raise BundleError(f"{bundle} has no {missing[0]} graph to compare: export all components")
    _check_memory(config)
    note("loading the checkpoint into transformers")
    reference = Reference(model, threads=threads)
    prompts = [(sample, reference.encode(sample)) for sample in SAMPLES]
    precision = opened.manifest.precision
    rows = _Rows(prompts, tokens, note)
    if opened.manifest.target == "ascend-310p":
        ascend = AscendCandidate(opened, threads=threads)
        rows.compare("graph", ascend, reference, GRAPH, every=True, exact_tokens=False)
    elif precision == "fp32":
        rows.compare("graph", Candidate(opened, threads=threads), reference, GRAPH, every=True)
    else:
        rows.compare(
            "quantisation", Candidate(opened, threads=threads), reference, QUANTISED[precision]
        )
        stored = stored_weights(opened, config)
        rows.compare_weights(stored, reference)
        reference.load({name: tensor.values for name, tensor in stored.items()})
        with exact_copy(opened) as exact:
            rows.compare("graph", Candidate(exact, threads=threads), reference, GRAPH, every=True)
    return Report(bundle.name, precision, tuple(rows.tensors), tuple(rows.tokens))


class _Rows:
    """Collects the rows of one comparison after the other."""

    def __init__(self, prompts: list[tuple[Sample, Prompt]], count: int, note: Note) -> None:
        self.tensors: list[TensorRow] = []
        self.tokens: list[TokenRow] = []
        self._prompts = prompts
        self._count = count
        self._note = note

    def compare_weights(self, stored: dict[str, StoredTensor], reference: Reference) -> None:
        """What rounding did to each matrix."""
        for name, tensor in stored.items():
            wanted = reference.weight(name)
            found = difference(tensor.values.reshape(wanted.shape), wanted)
            label = f"int{tensor.bits}_{name.removeprefix('model.').removesuffix('.weight')}"
            row = TensorRow("weights", "", label, found, WEIGHTS[tensor.bits])
            self.tensors.append(row)

    def compare(
        self,
        comparison: Comparison,
        candidate: Candidate | AscendCandidate,
        reference: Reference,
        limits: Limits,
        *,
        every: bool = False,
        exact_tokens: bool = True,
    ) -> None:
        """`every` tensor and token is limited, or logits and embeddings only. Without
        `exact_tokens` no number of equal tokens is required: in FP16 a near tie may fall either
        way."""
        for sample, prompt in self._prompts:
            self._note(f"comparing {comparison}: {sample.name}")
            for name, found, wanted in _tensors(candidate, reference, prompt):
                limited = every or name.partition("_")[0] in ("logits", "picture")
                measured = difference(aligned(found, wanted), wanted)
                row_limits = limits if limited else None
                self.tensors.append(TensorRow(comparison, sample.name, name, measured, row_limits))
            chosen = reference.greedy(prompt, self._count).tokens
            equal = int((candidate.follow(prompt, chosen).argmax(-1) == chosen).sum())
            required = self._count if every and exact_tokens else 0
            self.tokens.append(TokenRow(comparison, sample.name, equal, self._count, required))
        candidate.close()


def _tensors(
    candidate: Candidate | AscendCandidate, reference: Reference, prompt: Prompt
) -> Iterator[tuple[str, Float32, Float32]]:
    """Name, bundle's and reference's values of all that a prompt produces."""
    for number, picture in enumerate(prompt.pictures, start=1):
        yield f"picture_{number}", candidate.vision(picture), reference.vision(picture)
    found, wanted = candidate.prefill(prompt), reference.prefill(prompt)
    yield "logits", found.logits, wanted.logits
    for name, values in wanted.states.items():
        yield name, found.states[name], values


def aligned(found: Float32, wanted: Float32) -> Float32:
    """`found` with its axes as in `wanted`: a convolution state may have its channels last."""
    return found if found.shape == wanted.shape else np.swapaxes(found, -1, -2)


def _check_memory(config: ModelConfig) -> None:
    """Refuse before the machine starts to swap or kills us."""
    values = sum(
        int(np.prod(shape))
        for component in _COMPONENTS["cpu"]
        for shape in expected_tensors(config, component).values()
    )
    needed, free = values * 4, psutil.virtual_memory().available
    if needed > free:
        raise NotEnoughMemoryError(
            f"comparing needs {needed / 1e9:.1f} GB of memory for the checkpoint in FP32, "
            f"{free / 1e9:.1f} GB are free: close other programs, or export with --no-verify"
        )
