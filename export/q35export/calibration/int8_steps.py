"""What the codes of each matrix's inputs are worth where an NPU multiplies in int8 (W8A8), and
which matrices stay floats because int8 would cost too much.

An input has one step for all of its values and all tokens, so one value that stands out makes all
others coarse. A step is the one of least squared error on the calibration text, each value weighted
by the column that it meets. What a matrix costs is measured as in `sensitivity`: each kind is
multiplied in int8 in every layer while all else is exact, on windows that no step was set by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from q35export.calibration.allocation import listed
from q35export.calibration.calibrate import (
    ROUNDING,
    Texts,
    Window,
    end_matrices,
    head_reader,
    looked_up,
    run,
    shown_in,
)
from q35export.calibration.kept import Kept, compare
from q35export.calibration.layers import Layer, Projection, layer_matrices
from q35export.calibration.rotation import TurnedWeights
from q35export.calibration.sensitivity import MEASURED_ON, MEASURING
from q35export.config import TextConfig
from q35export.int8_rows import LARGEST, rounded_inputs, rounded_rows
from q35export.inventory import Inventory
from q35export.matrix import Float32, Matrix, TensorSource
from q35export.precision import PrecisionPlan
from q35export.progress import Reporter

Int64 = npt.NDArray[np.int64]

LM_HEAD = "head/lm_head"
_KEPT = "int8.json"
_SHRINK = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1)
"""Steps tried, as shares of the one that spans the largest value."""
_LEAST_STEP = 2.0**-15
"""The kernel multiplies by one over it, which is to stay within FP16."""
_TRIED_ON = 1024
"""Rows of inputs that the steps are tried on; the largest value is that of all."""
_FLOATS, _TAKEN = 1 / 8, 1 / 2
"""Of all weights at most so many stay floats, and only until so much of the divergence is gone."""
_LITTLE = 1e-3
"""A divergence in nats that no matrix stays a float for: about what int8 costs on the CPU."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """By a matrix's name in the graph: its step, and the divergence in nats that int8 makes of it
    alone."""

    steps: Mapping[str, float]
    costs: Mapping[str, float]


def int8_matrices(
    config: TextConfig, source: TensorSource, plan: PrecisionPlan
) -> list[Projection]:
    """The matrices that can be multiplied in int8: those of the layers, and the head by its own
    name, for rows of a tied one are looked up as floats."""
    head = replace(end_matrices(config, source, plan)[-1], name=LM_HEAD)
    return [*layer_matrices(config, plan), head]


def planned_steps(config: TextConfig, plan: PrecisionPlan) -> dict[str, float]:
    """As many matrices in int8 as there will be at least, before anything is measured; their steps
    mean nothing. A head that stays a float takes no room where it is tied, so it does not count."""
    matrices = int8_matrices(config, Inventory(), plan)
    alike = {one.name: 0.0 if one.name == LM_HEAD else float(_size(one)) for one in matrices}
    stay = floats(matrices, alike, taken=1.0) - {LM_HEAD}
    return {name: 1.0 for name in alike if name not in stay}


def calibrate_int8(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    work: Path,
    reporter: Reporter,
) -> tuple[PrecisionPlan, Kept, str]:
    """The plan with the steps of the matrices that are multiplied in int8, what that keeps of the
    model on the text that is held out, and which matrices stay floats, as `listed` has them."""
    if plan.turned:
        source = TurnedWeights(source, config)
    measured = measure(config, source, plan, texts.calibration, work, reporter)
    stay = floats(int8_matrices(config, source, plan), measured.costs)
    steps = {name: step for name, step in measured.steps.items() if name not in stay}
    plan = replace(plan, steps=steps)
    return plan, _kept(config, source, plan, texts, reporter), listed(stay)


def measure(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    windows: Sequence[Window],
    work: Path,
    reporter: Reporter,
) -> StepCosts:
    """Steps from all but the first of `windows`, costs from those. Kept in `work` once known;
    `source` has the weights for the plan's residual stream."""
    kept = work / _KEPT
    if kept.is_file():
        return StepCosts(**json.loads(kept.read_text(encoding="utf-8")))
    embedding = end_matrices(config, source, plan)[0]
    read, windows = windows[MEASURED_ON:] or windows, windows[:MEASURED_ON]
    longest = max(len(window.ids) for window in (*read, *windows))
    exact, exact_read = (
        shown_in(some, looked_up(embedding, some), config, turned=plan.turned)
        for some in (windows, read)
    )
    steps: dict[str, float] = {}
    streams: dict[str, list[Float32]] = {}
    errors: dict[str, dict[str, float]] = {}
    matrices = int8_matrices(config, source, plan)
    reporter.begin(MEASURING, sum(map(_size, matrices)))
    for index, mixer in enumerate(config.layer_types):
        layer = Layer(config, source, plan, index, longest=longest, taps=True)
        seen_read = [layer.run(*pair) for pair in _pairs(exact_read, read)]
        seen = [layer.run(*pair) for pair in _pairs(exact, windows)]
        for name, hidden in streams.items():
            if not name.startswith(mixer):
                streams[name] = run(layer, windows, hidden)
        before, exact = exact, layer.finished(seen)
        exact_read, of_layer = layer.finished(seen_read), layer.projections
        del layer
        for one in of_layer:
            kind = f"{mixer} {one.name.rpartition('/')[2]}"
            step = step_of(one.weights, [each.inputs[one.name] for each in seen_read])
            steps[one.name] = step
            told = np.concatenate([each.inputs[one.name] for each in seen])
            errors.setdefault(kind, {})[one.name] = _error(one.weights, told, step)
            own = {one.name: step}
            rounded = Layer(config, source, plan, index, longest=longest, steps=own)
            streams[kind] = run(rounded, windows, streams.get(kind, before))
        reporter.advance(MEASURING, sum(map(_size, of_layer)))
    head = matrices[-1].weights
    reads = head_reader(config, source, turned=plan.turned)
    steps[LM_HEAD] = step_of(head, [reads(rows) for rows in exact_read])
    following = np.concatenate([window.ids[1:] for window in windows])
    wanted = _ahead(reads, exact)
    costs: dict[str, float] = {}
    for kind, shares in errors.items():
        cost = compare(wanted, _ahead(reads, streams[kind]), following, _heads(head)).divergence
        total = sum(shares.values()) or 1.0
        costs |= {name: cost * share / total for name, share in shares.items()}
    coded = rounded_inputs(wanted, steps[LM_HEAD])
    costs[LM_HEAD] = compare(wanted, coded, following, _heads(head, steps[LM_HEAD])).divergence
    kept.write_text(json.dumps({"steps": steps, "costs": costs}), encoding="utf-8")
    reporter.end(MEASURING)
    return StepCosts(steps, costs)


def step_of(weights: Matrix, inputs: Sequence[Float32]) -> float:
    """The step of least squared error of the products, for inputs `[tokens, k]` of a matrix."""
    peak = max(float(np.abs(rows).max()) for rows in inputs)
    joined = np.concatenate(inputs)
    rows = joined[:: max(1, len(joined) // _TRIED_ON)]
    columns = np.zeros(weights.k, np.float32)
    for span in weights.spans():
        columns += np.square(weights.rows(*span)).sum(axis=0)
    steps = {max(_LEAST_STEP, float(np.float32(peak * share / LARGEST))) for share in _SHRINK}

    def error(step: float) -> float:
        return float(np.square(rounded_inputs(rows, step) - rows).sum(axis=0) @ columns)

    return min(sorted(steps), key=error)


def floats(
    matrices: Sequence[Projection], costs: Mapping[str, float], taken: float = _TAKEN
) -> set[str]:
    """The matrices that stay floats, those first that cost most for their size: until `taken` of
    the divergence is gone with them, and no more than an eighth of all weights."""
    total = sum(costs.values())
    left, gone = int(sum(map(_size, matrices)) * _FLOATS), 0.0
    stay: set[str] = set()
    if total < _LITTLE:
        return stay
    for one in sorted(matrices, key=lambda one: (-costs[one.name] / _size(one), one.name)):
        if gone >= taken * total:
            break
        if _size(one) <= left:
            stay.add(one.name)
            left, gone = left - _size(one), gone + costs[one.name]
    return stay


def _kept(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    reporter: Reporter,
) -> Kept:
    """What the plan keeps of the model on the text that is held out."""
    windows, longest = texts.held_out, max(len(window.ids) for window in texts.held_out)
    embedding, head = end_matrices(config, source, plan)[0], end_matrices(config, source, plan)[-1]
    exact = rounded = looked_up(embedding, windows)
    reporter.begin(ROUNDING, len(config.layer_types))
    for index in range(len(config.layer_types)):
        layer = Layer(config, source, plan, index, longest=longest)
        exact = run(layer, windows, exact)
        layer = Layer(config, source, plan, index, longest=longest, steps=plan.steps)
        rounded = run(layer, windows, rounded)
        reporter.advance(ROUNDING, 1)
    reporter.end(ROUNDING)
    reads = head_reader(config, source, turned=plan.turned)
    wanted, found = _ahead(reads, exact), _ahead(reads, rounded)
    step = plan.steps.get(LM_HEAD)
    if step is not None:
        found = rounded_inputs(found, step)
    following = np.concatenate([window.ids[1:] for window in windows])
    return compare(wanted, found, following, _heads(head.weights, step))


def _pairs(hidden: Sequence[Float32], windows: Sequence[Window]) -> Iterable[tuple[Float32, Int64]]:
    return zip(hidden, (window.positions for window in windows), strict=True)


def _ahead(reads: Callable[[Float32], Float32], hidden: Sequence[Float32]) -> Float32:
    """What the head reads of all tokens that another one follows."""
    return np.concatenate([reads(rows[:-1]) for rows in hidden])


def _heads(weights: Matrix, step: float | None = None) -> Iterator[tuple[Float32, Float32]]:
    """Some rows of the head at a time, exact and as they are multiplied."""
    for span in weights.spans():
        rows = weights.rows(*span)
        yield rows, rows if step is None else rounded_rows(rows, step)


def _error(weights: Matrix, inputs: Float32, step: float) -> float:
    """`|X̂ Ŵᵀ - X Wᵀ|² / |X Wᵀ|²` of what is rounded."""
    coded = rounded_inputs(inputs, step)
    lost = whole = 0.0
    for span in weights.spans():
        rows = weights.rows(*span)
        exact = inputs @ rows.T
        lost += float(np.square(coded @ rounded_rows(rows, step).T - exact).sum())
        whole += float(np.square(exact).sum())
    return lost / whole if whole else 0.0


def _size(one: Projection) -> int:
    """Weights, or bytes in int8."""
    return one.weights.n * one.weights.k
