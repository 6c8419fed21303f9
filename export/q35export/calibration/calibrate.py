"""Goes through a checkpoint layer by layer and rounds each matrix for the inputs it will see.

One layer is in memory at a time: its FP32 graph tells the inputs that the rounded layers before it
make of the calibration text, its matrices are rounded by them (`feedback`), and the rounded layer
makes the inputs of the next. Last comes the head. Codes lie in a work folder; a calibration that
was stopped goes on at the layer where it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from q35export.calibration.feedback import DAMPING, Feedback, feedback_of, round_rows
from q35export.calibration.kept import Kept, compare
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


@dataclass(frozen=True, slots=True)
class Texts:
    """What a calibration reads: windows that it rounds for, and others that it is measured on."""

    calibration: Sequence[Window]
    held_out: Sequence[Window]


@dataclass(frozen=True, slots=True, eq=False)
class _Streams:
    """Hidden states `[T, H]` of each window between two layers: of the rounded model for both
    texts, and of the exact one for the text that is held out."""

    calibration: list[Float32]
    held_out: list[Float32]
    exact: list[Float32]


def calibrate(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    work: Path,
    say: Say,
) -> tuple[PrecisionPlan, Kept]:
    """The plan with every matrix of the decoder and the head decided on, its codes in `work`; and
    what the rounded model keeps.

    `say` is told how far it is. What `work` holds of an earlier run over the same is taken over.
    """
    assert plan.decoder is not None
    assert plan.head is not None
    turned = TurnedWeights(source, config)
    codes = _Codes(work)
    streams, done = _resume(work, texts), _layers_done(work)
    if streams is None:
        streams = _embedded(config, turned, plan.head, texts)
    longest = max(len(window.ids) for window in (*texts.calibration, *texts.held_out))
    clock = _Clock(len(config.layer_types) - done + 1, say)
    for index in range(done, len(config.layer_types)):
        clock.says(f"layer {index + 1} of {len(config.layer_types)}")
        streams = _layer(config, turned, plan, texts, codes, streams, index, longest)
        _keep(work, index + 1, [*streams.calibration, *streams.held_out, *streams.exact])
    clock.says("the head")
    kept = _head(config, turned, plan.head, codes, streams, texts)
    return replace(plan, turned=True, matrices=codes.decided()), kept


def _layer(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    codes: _Codes,
    streams: _Streams,
    index: int,
    longest: int,
) -> _Streams:
    """Round one layer; what comes out of it."""
    assert plan.decoder is not None
    exact = Layer(codes.work, config, source, plan, index, taps=True, longest=longest)
    moments: dict[str, Float32] = {}
    for window, rows in zip(texts.calibration, streams.calibration, strict=True):
        for name, inputs in exact.run(rows, window.positions).inputs.items():
            product = inputs.T @ inputs
            moments[name] = moments[name] + product if name in moments else product
    untouched = _run(exact, texts.held_out, streams.exact)
    projections = exact.projections
    del exact  # its weights, before the moments are factored
    for projection in projections:
        feedback = feedback_of(moments.pop(projection.name))
        codes.round(projection.name, projection.weights, plan.decoder, feedback)
    decided = replace(plan, matrices=codes.decided())
    rounded = Layer(codes.work, config, source, decided, index, taps=False, longest=longest)
    return _Streams(
        _run(rounded, texts.calibration, streams.calibration),
        _run(rounded, texts.held_out, streams.held_out),
        untouched,
    )


def _run(layer: Layer, windows: Sequence[Window], hidden: Sequence[Float32]) -> list[Float32]:
    pairs = zip(windows, hidden, strict=True)
    return [layer.run(rows, window.positions).hidden for window, rows in pairs]


def _head(
    config: TextConfig,
    source: TensorSource,
    quantised: Quantisation,
    codes: _Codes,
    streams: _Streams,
    texts: Texts,
) -> Kept:
    """Round the embedding and the head, a tied one for what the head reads; what is kept."""
    embedding = matrix(source, f"{TEXT}embed_tokens.weight", _table(config))
    fmt = quantised.format_of(embedding.n, embedding.k)
    if fmt.bits == 8 or not config.tied:
        codes.round(EMBEDDING, embedding, quantised, None)
    head, name = embedding, EMBEDDING
    if not config.tied:
        head, name = matrix(source, HEAD, _table(config)), UNTIED
    rotation = rotation_of(config.hidden_size)
    source.expect(f"{TEXT}norm.weight", (config.hidden_size,))
    gamma = np.float32(1) + source.read(f"{TEXT}norm.weight")

    def read(rows: Float32) -> Float32:
        plain = rotation.turn_back(rows)
        spread = np.sqrt(np.mean(plain * plain, axis=-1, keepdims=True) + np.float32(config.eps))
        return rotation.turn(plain / spread * gamma)

    if fmt.bits == 4:
        moments = np.zeros((config.hidden_size, config.hidden_size), np.float32)
        for rows in streams.calibration:
            inputs = read(rows)
            moments += inputs.T @ inputs
        feedback = feedback_of(moments, LOOKED_UP if config.tied else DAMPING)
        codes.round(name, head, quantised, feedback)
    elif not config.tied:
        codes.round(name, head, quantised, None)
    exact, rounded = (
        np.concatenate([read(rows[:-1]) for rows in hidden])
        for hidden in (streams.exact, streams.held_out)
    )
    following = np.concatenate([window.ids[1:] for window in texts.held_out])
    return compare(exact, rounded, following, codes.beside(name, head))


def _embedded(
    config: TextConfig, source: TensorSource, quantised: Quantisation, texts: Texts
) -> _Streams:
    """The embeddings of each window, rounded one by one, and exact."""
    table = matrix(source, f"{TEXT}embed_tokens.weight", _table(config))
    fmt = quantised.format_of(table.n, table.k)

    tokens = {t for w in (*texts.calibration, *texts.held_out) for t in w.ids.tolist()}
    exact = {token: table.rows(token, token + 1) for token in sorted(tokens)}
    rounded = {token: dequantize(*quantize(row, fmt), table.k, fmt) for token, row in exact.items()}

    def looked_up(windows: Sequence[Window], rows: Mapping[int, Float32]) -> list[Float32]:
        return [np.concatenate([rows[token] for token in w.ids.tolist()]) for w in windows]

    return _Streams(
        looked_up(texts.calibration, rounded),
        looked_up(texts.held_out, rounded),
        looked_up(texts.held_out, exact),
    )


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

    def beside(self, name: str, weights: Matrix) -> Iterator[tuple[Float32, Float32]]:
        """Some rows of a matrix at a time, exact and as they were rounded."""
        stored = self.decided()[name]
        assert stored.read is not None
        codes, scales = stored.read()
        for start, stop in _spans(weights):
            rounded = dequantize(codes[start:stop], scales[start:stop], weights.k, stored.fmt)
            yield weights.rows(start, stop), rounded

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


def _resume(work: Path, texts: Texts) -> _Streams | None:
    """What the layers that are done made of each window."""
    done = _layers_done(work)
    if not done:
        return None
    with np.load(work / f"hidden {done}.npz") as kept:
        hidden = [kept[name] for name in kept.files]
    first, second = len(texts.calibration), len(texts.calibration) + len(texts.held_out)
    return _Streams(hidden[:first], hidden[first:second], hidden[second:])


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
