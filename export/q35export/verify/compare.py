"""Runs a bundle and its checkpoint side by side over the samples; owns the order, no maths."""

from __future__ import annotations

from pathlib import Path

from q35chat.bundle.bundle import Bundle
from q35export.config import ModelConfig, load_config
from q35export.verify.ascend_candidate import AscendCandidate
from q35export.verify.candidate import Candidate
from q35export.verify.exact_copy import exact_copy
from q35export.verify.limits import GRAPH, RUNNING
from q35export.verify.reference import Encoder, Reference
from q35export.verify.report import Report
from q35export.verify.requirements import Note, check_graphs, check_memory, fitting
from q35export.verify.rows import Rows, Side
from q35export.verify.samples import SAMPLES
from q35export.verify.stored_weights import stored_weights

TOKENS = 32


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
    told what is going on and what is left out. Raises TorchMissingError, NotComparableError,
    BundleError or CheckpointError.
    """
    opened, config = Bundle.open(bundle), load_config(model)
    check_graphs(opened)
    precision = opened.manifest.precision
    on_npu = opened.manifest.target == "ascend-310p"
    is_quantised = not on_npu and precision != "fp32"
    check_memory(opened, config, opened=2 if is_quantised else 1)
    encoder = Encoder(model)
    prompts = [(sample, encoder.encode(sample)) for sample in SAMPLES]
    rows = Rows(fitting(prompts, opened, tokens, note), tokens, note)
    if "mtp" in opened.manifest.graphs:
        note("the head for guessing tokens is not compared: transformers has none")
    note("loading the checkpoint into transformers")
    reference = Reference(model, threads=threads)
    if on_npu:
        _compare_on_npu(rows, reference, opened, threads)
    elif is_quantised:
        _compare_quantised(rows, reference, opened, threads, config)
    else:
        _compare_exact(rows, reference, opened, threads)
    return Report(bundle.name, precision, tuple(rows.tensors), tuple(rows.tokens))


def _compare_on_npu(rows: Rows, reference: Reference, bundle: Bundle, threads: int | None) -> None:
    """Tokens are not required: in FP16 a near tie may fall either way."""
    candidate = AscendCandidate(bundle, threads=threads)
    rows.compare(reference, [Side("graph", candidate, GRAPH, every=True)])
    candidate.close()


def _compare_exact(rows: Rows, reference: Reference, bundle: Bundle, threads: int | None) -> None:
    candidate = Candidate(bundle, threads=threads)
    rows.compare(reference, [Side("graph", candidate, GRAPH, every=True, exact_tokens=True)])
    candidate.close()


def _compare_quantised(
    rows: Rows, reference: Reference, bundle: Bundle, threads: int | None, config: ModelConfig
) -> None:
    """First with the checkpoint's weights, then with those that the bundle stores, which take
    their places in the reference one by one."""
    running = Candidate(bundle, threads=threads)
    rows.compare(reference, [Side("quantisation", running, None)])
    for name, tensor in stored_weights(bundle, config):
        rows.compare_weight(reference, name, tensor)
        reference.load({name: tensor.values})
        del tensor  # before the next is read
    with exact_copy(bundle) as copy:
        exact = Candidate(copy, threads=threads)
        sides = [
            Side("graph", exact, GRAPH, every=True, exact_tokens=True),
            Side("running", running, RUNNING),
        ]
        rows.compare(reference, sides)
        exact.close()
    running.close()
