"""Measures what the rounding of each matrix costs, so that bits can go where they count.

A kind of matrix, such as the `down` of linear layers, is rounded in every layer while all else
stays exact: the divergence behind the head is what this kind costs. It is shared out among its
layers by how far each alone moves what comes out of its layer, beside its length: a first layer,
whose stream is short, costs many times what a late one does. A tied matrix costs what it does as
embedding and as head; one with fine codes is left as it is.
All kinds go through the layers side by side, so that each layer is read once. Windows that are
measured on are not those that are rounded for: on its own text a wide matrix seems to cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from q35export.calibration.calibrate import (
    EMBEDDING,
    Window,
    end_matrices,
    head_feedback,
    head_reader,
    looked_up,
    looked_up_rounded,
    moments_of,
    run,
)
from q35export.calibration.codes import CodesFile
from q35export.calibration.feedback import damping_of, feedback_of
from q35export.calibration.kept import compare
from q35export.calibration.layers import Layer, Projection, layer_matrices
from q35export.calibration.rotation import TurnedWeights
from q35export.config import TextConfig
from q35export.matrix import Float32, HeldTensors, TensorSource
from q35export.precision import PrecisionPlan
from q35export.progress import Reporter

MEASURING = "measuring"
"""What a reporter is told that advances by bytes of rounded matrices."""
_KEPT = "sensitivity.json"
MEASURED_ON = 2
"""Windows that costs are measured on; steps and codes are not set by them."""
_MEASURED_TOKENS = 256


def budgeted(config: TextConfig, source: TensorSource, plan: PrecisionPlan) -> list[Projection]:
    """The matrices that bits are spent on: those of the layers, and a head without fine codes."""
    found, head = layer_matrices(config, plan), end_matrices(config, source, plan)[-1]
    return found if head.fine else [*found, head]


def sensitivity(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    windows: Sequence[Window],
    work: Path,
    reporter: Reporter,
) -> dict[str, float]:
    """The divergence in nats that each matrix makes when it alone is rounded, by its name.

    It is measured on the beginnings of the first two of `windows`, and rounded for the others. Kept
    in `work` once it is known.
    """
    kept = work / _KEPT
    if kept.is_file():
        found: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    if plan.turned:
        source = TurnedWeights(source, config)
    codes = CodesFile(work)
    embedding = end_matrices(config, source, plan)[0]
    longest = max(len(window.ids) for window in windows)
    read = windows[MEASURED_ON:] or windows
    windows = [_beginning(window) for window in windows[:MEASURED_ON]]
    exact, exact_read = looked_up(embedding, windows), looked_up(embedding, read)
    tokens = sum(len(window.ids) for window in read)
    streams: dict[str, list[Float32]] = {}
    if config.tied and not embedding.fine:  # its rows are looked up as they are rounded
        streams[EMBEDDING] = looked_up_rounded(embedding, windows)
    moved: dict[str, dict[str, float]] = {}
    reporter.begin(MEASURING, sum(one.size for one in budgeted(config, source, plan)))
    for index, mixer in enumerate(config.layer_types):
        held = HeldTensors(source)
        layer = Layer(config, held, plan, index, longest=longest, taps=True)
        moments = moments_of(layer, read, exact_read)
        for name, hidden in streams.items():
            if not name.startswith(mixer):
                streams[name] = run(layer, windows, hidden)
        exact, exact_read, before = run(layer, windows, exact), run(layer, read, exact_read), exact
        matrices = layer.projections
        del layer
        for one in matrices:
            kind = f"{mixer} {one.name.rpartition('/')[2]}"
            feedback = feedback_of(moments.pop(one.name), damping_of(tokens, one.weights.k))
            codes.round(one.name, one.weights, one.fmt, feedback)
            stored = {one.name: codes.stored()[one.name]}
            rounded = Layer(config, held, plan, index, longest=longest, stored=stored)
            alone = run(rounded, windows, before)
            moved.setdefault(kind, {})[one.name] = _moved(exact, alone)
            streams[kind] = run(rounded, windows, streams[kind]) if kind in streams else alone
            codes.forget(one.name)
        reporter.advance(MEASURING, sum(one.size for one in matrices))
    costs = _shared_out(config, source, plan, windows, codes, exact, exact_read, streams, moved)
    kept.write_text(json.dumps(costs), encoding="utf-8")
    reporter.end(MEASURING)
    return costs


def _shared_out(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    windows: Sequence[Window],
    codes: CodesFile,
    exact: list[Float32],
    exact_read: list[Float32],
    streams: dict[str, list[Float32]],
    moved: dict[str, dict[str, float]],
) -> dict[str, float]:
    """What each kind's stream `[T, H]` costs behind the head, among the kind's matrices."""
    read = head_reader(config, source, turned=plan.turned)
    head = end_matrices(config, source, plan)[-1]
    following = np.concatenate([window.ids[1:] for window in windows])

    def reads(hidden: list[Float32]) -> Float32:
        return np.concatenate([read(rows[:-1]) for rows in hidden])

    costs: dict[str, float] = {}
    wanted = reads(exact)
    for kind, shares in moved.items():
        heads = (head.weights.rows(*span) for span in head.weights.spans())
        same = ((rows, rows) for rows in heads)
        cost = compare(wanted, reads(streams[kind]), following, same).divergence
        total = sum(shares.values()) or 1.0
        costs |= {name: cost * share / total for name, share in shares.items()}
    if head.fine:
        return costs
    feedback = head_feedback(config, head, read, exact_read)
    codes.round(head.name, head.weights, head.fmt, *([feedback] if feedback else []))
    beside = codes.beside(head.name, head.weights)
    found = reads(streams[EMBEDDING]) if config.tied else wanted
    costs[head.name] = compare(wanted, found, following, beside).divergence
    codes.forget(head.name)
    return costs


def _beginning(window: Window) -> Window:
    return Window(window.ids[:_MEASURED_TOKENS], window.positions[:, :_MEASURED_TOKENS])


def _moved(exact: list[Float32], found: list[Float32]) -> float:
    """The mean over tokens of `|x' - x|² / |x|²`, hidden states `[T, H]` of each window."""
    one, other = np.concatenate(exact), np.concatenate(found)
    lengths = np.maximum((one * one).sum(-1), np.finfo(np.float32).tiny)
    return float((((other - one) ** 2).sum(-1) / lengths).mean())
