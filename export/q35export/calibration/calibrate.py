"""Goes through a checkpoint layer by layer and rounds each matrix for the inputs it will see.

One layer is in memory at a time: its FP32 graph tells the inputs that the rounded layers before it
make of the calibration text, its matrices are rounded by them (`feedback`), and the rounded layer
makes the inputs of the next. Last comes the head. Codes lie in a work folder; a calibration that
was stopped goes on at the layer where it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from q35export.calibration.feedback import DAMPING, Feedback, feedback_of, round_rows
from q35export.calibration.layers import Layer
from q35export.calibration.rotation import TurnedWeights, rotation_of
from q35export.config import TextConfig
from q35export.matrix import HEAD, TEXT, Float32, Matrix, Shape, TensorSource, matrix
from q35export.precision import PrecisionPlan, Quantisation, StoredAs
from q35export.quantize import BlockFormat, Codes, dequantize, quantize

Int64 = npt.NDArray[np.int64]
Say = Callable[[str], None]

EMBEDDING, UNTIED = "embed_tokens", "head/lm_head"
LOOKED_UP = 1.0
"""Damping of a tied matrix: the rows of an embedding are looked up as they are, so that their own
errors count as much as those they make in the head."""
_PIECE_VALUES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A piece of the calibration text that is read at once: token ids `[T]`, mRoPE positions
    `[3, T]`."""

    ids: Int64
    positions: Int64


def calibrate(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    windows: Sequence[Window],
    work: Path,
    say: Say,
) -> PrecisionPlan:
    """The plan with every matrix of the decoder and the head decided on, its codes in `work`.

    `say` is told how far it is. What `work` holds of an earlier run over the same is taken over.
    """
    assert plan.decoder is not None
    assert plan.head is not None
    turned = TurnedWeights(source, config)
    codes = _Codes(work)
    hidden, done = _resume(work), _layers_done(work)
    if hidden is None:
        hidden = _embedded(config, turned, plan.head, windows)
    longest = max(len(window.ids) for window in windows)
    clock = _Clock(len(config.layer_types) - done + 1, say)
    for index in range(done, len(config.layer_types)):
        clock.says(f"layer {index + 1} of {len(config.layer_types)}")
        hidden = _layer(config, turned, plan, windows, codes, hidden, index, longest)
        _keep(work, index + 1, hidden)
    clock.says("the head")
    _head(config, turned, plan.head, codes, hidden)
    return replace(plan, turned=True, matrices=codes.decided())


def _layer(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    windows: Sequence[Window],
    codes: _Codes,
    hidden: Sequence[Float32],
    index: int,
    longest: int,
) -> list[Float32]:
    """Round one layer; what the rounded layer makes of `hidden`."""
    assert plan.decoder is not None
    exact = Layer(codes.work, config, source, plan, index, taps=True, longest=longest)
    moments: dict[str, Float32] = {}
    for window, rows in zip(windows, hidden, strict=True):
        for name, inputs in exact.run(rows, window.positions).inputs.items():
            product = inputs.T @ inputs
            moments[name] = moments[name] + product if name in moments else product
    projections = exact.projections
    del exact  # its weights, before the moments are factored
    for projection in projections:
        feedback = feedback_of(moments.pop(projection.name))
        codes.round(projection.name, projection.weights, plan.decoder, feedback)
    decided = replace(plan, matrices=codes.decided())
    rounded = Layer(codes.work, config, source, decided, index, taps=False, longest=longest)
    return [
        rounded.run(rows, window.positions).hidden
        for window, rows in zip(windows, hidden, strict=True)
    ]


def _head(
    config: TextConfig,
    source: TensorSource,
    quantised: Quantisation,
    codes: _Codes,
    hidden: Sequence[Float32],
) -> None:
    """Round the embedding and the head; a tied one for what the head reads."""
    embedding = matrix(source, f"{TEXT}embed_tokens.weight", _table(config))
    fmt = quantised.format_of(embedding.n, embedding.k)
    if fmt.bits == 8 or not config.tied:
        codes.round(EMBEDDING, embedding, quantised, None)
    if fmt.bits == 8 and config.tied:
        return
    rotation = rotation_of(config.hidden_size)
    source.expect(f"{TEXT}norm.weight", (config.hidden_size,))
    gamma = np.float32(1) + source.read(f"{TEXT}norm.weight")
    moments = np.zeros((config.hidden_size, config.hidden_size), np.float32)
    for rows in hidden:
        plain = rotation.turn_back(rows)
        spread = np.sqrt(np.mean(plain * plain, axis=-1, keepdims=True) + np.float32(config.eps))
        read = rotation.turn(plain / spread * gamma)
        moments += read.T @ read
    head = embedding if config.tied else matrix(source, HEAD, _table(config))
    codes.round(
        EMBEDDING if config.tied else UNTIED,
        head,
        quantised,
        feedback_of(moments, LOOKED_UP if config.tied else DAMPING),
    )


def _embedded(
    config: TextConfig, source: TensorSource, quantised: Quantisation, windows: Sequence[Window]
) -> list[Float32]:
    """The embeddings `[T, H]` of each window, rounded one by one."""
    table = matrix(source, f"{TEXT}embed_tokens.weight", _table(config))
    fmt = quantised.format_of(table.n, table.k)

    def row(token: int) -> Float32:
        found: Float32 = dequantize(*quantize(table.rows(token, token + 1), fmt), table.k, fmt)[0]
        return found

    known = {token: row(token) for window in windows for token in window.ids.tolist()}
    return [np.stack([known[token] for token in window.ids.tolist()]) for window in windows]


def _table(config: TextConfig) -> Shape:
    return config.vocab_size, config.hidden_size


class _Codes:
    """The rounded matrices in a folder, each by its name in the graph."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def round(
        self, name: str, weights: Matrix, quantised: Quantisation, feedback: Feedback | None
    ) -> None:
        """Round a matrix and write it; without feedback to nearest."""
        fmt = quantised.format_of(weights.n, weights.k)
        shape = (weights.n, fmt.blocks(weights.k), fmt.block_bytes())
        stem = self.work / name.replace("/", " ")
        codes = np.lib.format.open_memmap(
            stem.with_suffix(".codes.new"), mode="w+", dtype=np.uint8, shape=shape
        )
        scales = np.empty(shape[:2], np.float32)
        for start, stop in _spans(weights):
            rows = weights.rows(start, stop)
            rounded = quantize(rows, fmt) if feedback is None else round_rows(rows, feedback, fmt)
            codes[start:stop], scales[start:stop] = rounded
        codes.flush()
        np.save(stem.with_suffix(".scales.npy"), scales)
        kind = f".{fmt.bits}-{fmt.block}-{fmt.accuracy_level}.npy"
        stem.with_suffix(".codes.new").replace(stem.with_suffix(kind))

    def decided(self) -> dict[str, StoredAs]:
        """What lies in the folder."""
        found = {}
        for path in sorted(self.work.glob("*.npy")):
            if kind := re.fullmatch(r"(.+)\.(\d+)-(\d+)-(\d+)\.npy", path.name):
                name, *numbers = kind.groups()
                fmt = BlockFormat(*map(int, numbers))
                read = partial(_read, path, path.with_name(f"{name}.scales.npy"))
                found[name.replace(" ", "/")] = StoredAs(fmt, read)
        return found


def _read(codes: Path, scales: Path) -> tuple[Codes, Float32]:
    return np.load(codes, mmap_mode="r"), np.load(scales)


def _spans(weights: Matrix) -> Iterator[tuple[int, int]]:
    step = max(1, _PIECE_VALUES // weights.k)
    for start in range(0, weights.n, step):
        yield start, min(start + step, weights.n)


def _layers_done(work: Path) -> int:
    return max((int(path.stem.split()[-1]) for path in work.glob("hidden *.npz")), default=0)


def _resume(work: Path) -> list[Float32] | None:
    """What the layers that are done made of each window."""
    done = _layers_done(work)
    if not done:
        return None
    with np.load(work / f"hidden {done}.npz") as kept:
        return [kept[name] for name in kept.files]


def _keep(work: Path, done: int, hidden: Sequence[Float32]) -> None:
    with (work / "hidden.new").open("wb") as file:
        np.savez(file, *hidden)
    (work / "hidden.new").replace(work / f"hidden {done}.npz")
    (work / f"hidden {done - 1}.npz").unlink(missing_ok=True)


class _Clock:
    """Says what is begun, and how long the rest will take at the pace so far."""

    def __init__(self, steps: int, say: Say) -> None:
        self._steps, self._say = steps, say
        self._begun, self._started = 0, time.monotonic()

    def says(self, what: str) -> None:
        """The next step begins."""
        took = time.monotonic() - self._started
        left = took / self._begun * (self._steps - self._begun) if self._begun else 0.0
        self._say(f"calibrating {what}" + (f", {left:.0f} s left" if left >= 1 else ""))
        self._begun += 1
