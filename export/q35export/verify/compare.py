"""Runs a bundle and its checkpoint side by side over the samples; owns the order, no maths."""

from __future__ import annotations

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
from q35export.verify.limits import GRAPH, RUNNING
from q35export.verify.reference import Reference
from q35export.verify.report import Report
from q35export.verify.rows import Note, Rows, Side
from q35export.verify.samples import SAMPLES
from q35export.verify.stored_weights import stored_weights

TOKENS = 32
_COMPONENTS = {"cpu": ("text", "vision"), "ascend-310p": ASCEND_COMPONENTS}


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
    if "mtp" in opened.manifest.graphs:
        note("the head for guessing tokens is not compared: transformers has none")
    note("loading the checkpoint into transformers")
    reference = Reference(model, threads=threads)
    prompts = [(sample, reference.encode(sample)) for sample in SAMPLES]
    precision = opened.manifest.precision
    rows = Rows(prompts, tokens, note)
    if opened.manifest.target == "ascend-310p":
        # in FP16 a near tie may fall either way
        ascend = AscendCandidate(opened, threads=threads)
        rows.compare(reference, [Side("graph", ascend, GRAPH, every=True)])
        ascend.close()
    elif precision == "fp32":
        _compare_exact(rows, reference, opened, threads)
    else:
        _compare_quantised(rows, reference, opened, threads, config)
    return Report(bundle.name, precision, tuple(rows.tensors), tuple(rows.tokens))


def _compare_exact(rows: Rows, reference: Reference, bundle: Bundle, threads: int | None) -> None:
    candidate = Candidate(bundle, threads=threads)
    rows.compare(reference, [Side("graph", candidate, GRAPH, every=True, exact_tokens=True)])
    candidate.close()


def _compare_quantised(
    rows: Rows, reference: Reference, bundle: Bundle, threads: int | None, config: ModelConfig
) -> None:
    """First with the checkpoint's weights, then with those that the bundle stores."""
    running = Candidate(bundle, threads=threads)
    rows.compare(reference, [Side("quantisation", running, None)])
    stored = stored_weights(bundle, config)
    rows.compare_weights(reference, stored)
    reference.load({name: tensor.values for name, tensor in stored.items()})
    with exact_copy(bundle) as copy:
        exact = Candidate(copy, threads=threads)
        sides = [
            Side("graph", exact, GRAPH, every=True, exact_tokens=True),
            Side("running", running, RUNNING),
        ]
        rows.compare(reference, sides)
        exact.close()
    running.close()


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
