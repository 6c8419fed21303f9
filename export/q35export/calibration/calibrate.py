"""Goes through a checkpoint layer by layer, rounds each matrix and measures what is kept.

One layer is in memory at a time, of its experts one (`mixture`): its FP32 graph tells the inputs
that the rounded layers before it make of the calibration text, its matrices are rounded by them
(`feedback`), and the rounded layer makes the inputs of the next. Last comes the head. Without a
calibration text, and at 8 bits, a matrix is rounded to nearest. A text that is held out goes
through the exact layers and through the rounded ones. Codes lie in a work folder; a calibration
that was stopped goes on at the layer where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from q35export.calibration.codes import CodesFile
from q35export.calibration.feedback import Feedback, damping_of, feedback_of
from q35export.calibration.kept import Kept, compare
from q35export.calibration.layers import Layer, Projection, Seen, projections, together
from q35export.calibration.rotation import TurnedWeights, rotation_of
from q35export.config import TextConfig
from q35export.consumed import ConsumedCheckpoint
from q35export.matrix import HEAD, TEXT, Float32, HeldTensors, TensorSource, matrix
from q35export.precision import PrecisionPlan
from q35export.progress import Reporter
from q35export.quantize import dequantize, quantize

Int64 = npt.NDArray[np.int64]

EMBEDDING, UNTIED = "embed_tokens", "head/lm_head"
ROUNDING = "rounding"
"""What a reporter is told that advances by bytes of rounded matrices."""
LOOKED_UP = 1.0
"""Damping of a tied matrix without fine codes: the rows of an embedding are looked up as they are,
so that their own errors count as much as those they make in the head."""
_FLOAT_BYTES = 4
_TOGETHER = 4
"""Windows whose moments are taken in one multiplication."""
_FEW_BITS = 4
"""A matrix of more bits is rounded to nearest: its error does not count beside others."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A piece of the calibration text that is read at once: token ids `[T]`, mRoPE positions
    `[3, T]`; and embeddings `[M, H]` of pictures with the places of their tokens `[M]`."""

    ids: Int64
    positions: Int64
    places: Int64 | None = None
    pictures: Float32 | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """What a calibration reads: windows that it rounds for, perhaps none, and others that it is
    measured on."""

    calibration: Sequence[Window]
    held_out: Sequence[Window]

    def longest(self) -> int:
        """Tokens of the longest window."""
        return max(len(window.ids) for window in (*self.calibration, *self.held_out))


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
    reporter: Reporter,
    consumed: ConsumedCheckpoint | None = None,
) -> tuple[PrecisionPlan, Kept]:
    """The plan with every matrix of the decoder and the head rounded, its codes in `work`; and what
    the rounded model keeps.

    What `work` holds of an earlier run over the same is taken over. `consumed` is `source` where
    that is to be deleted on the way.
    """
    if plan.turned:
        source = TurnedWeights(source, config)
    codes, ends = CodesFile(work), end_matrices(config, source, plan)
    done = codes.layers
    streams = _resume(work, done, texts) if done else _embedded(config, plan, ends[0], texts)
    left = [projections(config, plan, index) for index in range(done, len(config.layer_types))]
    sizes = [sum(one.stored for one in some) for some in (*left, ends)]
    reporter.begin(ROUNDING, sum(sizes))
    for index, size in enumerate(sizes[:-1], done):
        kept_of_it = consumed.keeping(index) if consumed else nullcontext()
        streams = _layer(config, source, plan, texts, codes, streams, index, kept_of_it)
        _keep(work, codes, index + 1, [*streams.calibration, *streams.held_out, *streams.exact])
        for path in consumed.finish(index) if consumed else ():
            reporter.note(f"deleted {path}: layers up to {index} are rounded")
        reporter.advance(ROUNDING, size)
    kept = _head(config, source, plan, texts, codes, streams, ends)
    reporter.advance(ROUNDING, sizes[-1])
    reporter.end(ROUNDING)
    return replace(plan, matrices=codes.stored()), kept


def work_bytes(config: TextConfig, texts: Texts) -> int:
    """Most bytes of a work folder that do not become the bundle's: the hidden states, twice."""
    tokens = sum(len(window.ids) for window in (*texts.calibration, *texts.held_out))
    rows = 2 * (tokens + sum(len(window.ids) for window in texts.held_out))
    return _FLOAT_BYTES * rows * config.hidden_size


def end_matrices(
    config: TextConfig, source: TensorSource, plan: PrecisionPlan
) -> tuple[Projection, ...]:
    """The embedding, and the head where that is a matrix of its own; unread."""
    assert plan.head is not None
    found = []
    names = {EMBEDDING: f"{TEXT}embed_tokens.weight", UNTIED: HEAD}
    for name, tensor in list(names.items())[: 1 if config.tied else 2]:
        weights = matrix(source, tensor, (config.vocab_size, config.hidden_size))
        fmt = plan.format_of(name, weights.n, weights.k, plan.head)
        found.append(Projection(name, weights, fmt, fine=plan.head.refines(weights.n, fmt)))
    return tuple(found)


def _layer(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    codes: CodesFile,
    streams: _Streams,
    index: int,
    kept_of_it: AbstractContextManager[None],
) -> _Streams:
    """Round one layer; what comes out of it. What its rounded graph reads is read inside
    `kept_of_it`."""
    longest = texts.longest()
    taps = bool(texts.calibration)
    held = HeldTensors(source)
    exact = Layer(config, held, plan, index, longest=longest, taps=taps)
    moments = moments_of(exact, texts.calibration, streams.calibration)
    untouched = run(exact, texts.held_out, streams.exact)
    matrices = exact.projections
    del exact  # its weights, before the moments are factored
    tokens = sum(len(window.ids) for window in texts.calibration)
    for one in matrices:
        found = moments.pop(one.name, None)
        chosen = config.experts.chosen if config.experts else 0
        share = tokens * chosen // one.experts if one.experts else tokens
        codes.round(one.name, one.weights, one.fmt, *feedbacks(found, tokens, share))
    stored = codes.stored()
    del held, matrices
    with kept_of_it:
        rounded = Layer(config, source, plan, index, longest=longest, stored=stored)
    return _Streams(
        run(rounded, texts.calibration, streams.calibration),
        run(rounded, texts.held_out, streams.held_out),
        untouched,
    )


def feedbacks(moments: Float32 | None, tokens: int, share: int) -> Iterator[Feedback]:
    """How a matrix is rounded for inputs of these moments `[K, K]` of so many tokens, or those of
    experts `[E, K, K]` for theirs, each of about its `share`; nothing without."""
    if moments is None:
        return
    if moments.ndim == 2:
        yield feedback_of(moments, damping_of(tokens, len(moments)))
        return
    for own in moments:
        yield feedback_of(own, damping_of(max(1, share), len(own)))


def moments_of(
    layer: Layer, windows: Sequence[Window], hidden: Sequence[Float32]
) -> dict[str, Float32]:
    """`XᵀX` `[K, K]` of what each matrix of few bits in a tapped layer reads, by its name.

    Gate and up of all experts read the same rows, of which each takes a part: they share moments.
    Of what `down` reads each expert has its own, `[E, K, K]`.
    """
    wanted = [one for one in layer.projections if one.fmt.bits == _FEW_BITS]
    if not windows or not wanted:
        return {}
    shared = [one for one in wanted if not layer.is_last_of_experts(one)]
    moments = {one.name: np.zeros((one.weights.k,) * 2, np.float32) for one in shared}
    routed: list[Seen] = []
    for start in range(0, len(windows), _TOGETHER):
        some = zip(windows[start : start + _TOGETHER], hidden[start:], strict=False)
        seen = [layer.run(rows, window.positions) for window, rows in some]
        for name in moments:
            inputs = np.concatenate([each.inputs[name] for each in seen])
            moments[name] += inputs.T @ inputs
        routed += [replace(each, inputs={}) for each in seen if each.routed]
    if layer.mixture:
        (own,) = (one for one in wanted if layer.is_last_of_experts(one))
        moments[own.name] = layer.mixture.moments(together(routed))
    return moments


def run(layer: Layer, windows: Sequence[Window], hidden: Sequence[Float32]) -> list[Float32]:
    """What comes out of a layer, window by window."""
    pairs = zip(windows, hidden, strict=True)
    return layer.finished([layer.run(rows, window.positions) for window, rows in pairs])


def _head(
    config: TextConfig,
    source: TensorSource,
    plan: PrecisionPlan,
    texts: Texts,
    codes: CodesFile,
    streams: _Streams,
    ends: tuple[Projection, ...],
) -> Kept:
    """Round the embedding and the head, a tied one for what the head reads; what is kept."""
    read, head = head_reader(config, source, turned=plan.turned), ends[-1]
    for looked_up in ends[:-1]:
        codes.round(looked_up.name, looked_up.weights, looked_up.fmt)
    feedback = head_feedback(config, head, read, streams.calibration)
    codes.round(head.name, head.weights, head.fmt, *([feedback] if feedback else []))
    for one in (end for end in ends if end.fine):
        codes.round_left_over(one.name, one.weights)
    exact, rounded = (
        np.concatenate([read(rows[:-1]) for rows in hidden])
        for hidden in (streams.exact, streams.held_out)
    )
    following = np.concatenate([window.ids[1:] for window in texts.held_out])
    if not head.fine:
        return compare(exact, rounded, following, codes.beside(head.name, head.weights))
    rough = partial(codes.rough, head.name, head.weights)
    return compare(exact, rounded, following, codes.refined(head.name, head.weights), rough)


def head_feedback(
    config: TextConfig,
    head: Projection,
    read: Callable[[Float32], Float32],
    hidden: Sequence[Float32],
) -> Feedback | None:
    """How the head is rounded behind these hidden states `[T, H]`; None: to nearest."""
    if not hidden or head.fmt.bits != _FEW_BITS:
        return None
    moments = np.zeros((config.hidden_size, config.hidden_size), np.float32)
    for rows in hidden:
        inputs = read(rows)
        moments += inputs.T @ inputs
    tokens = sum(map(len, hidden))
    is_looked_up = config.tied and not head.fine
    damping = LOOKED_UP if is_looked_up else damping_of(tokens, config.hidden_size)
    return feedback_of(moments, damping)


def head_reader(
    config: TextConfig, source: TensorSource, *, turned: bool
) -> Callable[[Float32], Float32]:
    """What the head reads of hidden states `[T, H]` behind the last layer."""
    source.expect(f"{TEXT}norm.weight", (config.hidden_size,))
    gamma = np.float32(1) + source.read(f"{TEXT}norm.weight")
    rotation = rotation_of(config.hidden_size)

    def read(rows: Float32) -> Float32:
        plain = rotation.turn_back(rows) if turned else rows
        spread = np.sqrt(np.mean(plain * plain, axis=-1, keepdims=True) + np.float32(config.eps))
        normed: Float32 = plain / spread * gamma
        return rotation.turn(normed) if turned else normed

    return read


def _embedded(
    config: TextConfig, plan: PrecisionPlan, embedding: Projection, texts: Texts
) -> _Streams:
    """What goes into the first layer: embeddings, exact and rounded, and pictures."""
    exact = looked_up(embedding, texts.held_out)
    calibration = looked_up_rounded(embedding, texts.calibration)
    calibration = shown_in(texts.calibration, calibration, config, turned=plan.turned)
    return _Streams(calibration, looked_up_rounded(embedding, texts.held_out), exact)


def shown_in(
    windows: Sequence[Window], hidden: list[Float32], config: TextConfig, *, turned: bool
) -> list[Float32]:
    """The embeddings `[T, H]` of windows with their pictures put in their places."""
    rotation = rotation_of(config.hidden_size)
    for window, rows in zip(windows, hidden, strict=True):
        if window.places is not None and window.pictures is not None:
            rows[window.places] = rotation.turn(window.pictures) if turned else window.pictures
    return hidden


def looked_up(embedding: Projection, windows: Sequence[Window]) -> list[Float32]:
    """The exact embeddings `[T, H]` of each window."""
    ids = sorted({token for window in windows for token in window.ids.tolist()})
    rows = {token: embedding.weights.rows(token, token + 1) for token in ids}
    return [np.concatenate([rows[token] for token in w.ids.tolist()]) for w in windows]


def looked_up_rounded(embedding: Projection, windows: Sequence[Window]) -> list[Float32]:
    """As `looked_up`, each row rounded to nearest, and what that leaves over where it is fine."""
    fmt, width = embedding.fmt, embedding.weights.k

    def nearest(rows: Float32) -> Float32:
        return dequantize(*quantize(rows, fmt), width, fmt)

    exact = looked_up(embedding, windows)
    rounded = [nearest(rows) for rows in exact]
    if not embedding.fine:
        return rounded
    return [near + nearest(rows - near) for near, rows in zip(rounded, exact, strict=True)]


def _resume(work: Path, done: int, texts: Texts) -> _Streams:
    """What the layers that are done made of each window."""
    with np.load(work / f"hidden {done}.npz") as kept:
        hidden = [kept[name] for name in kept.files]
    first, second = len(texts.calibration), len(texts.calibration) + len(texts.held_out)
    return _Streams(hidden[:first], hidden[first:second], hidden[second:])


def _keep(work: Path, codes: CodesFile, done: int, hidden: Sequence[Float32]) -> None:
    """Have a later run go on behind the layers that are done."""
    with (work / f"hidden {done}.npz").open("wb") as file:
        np.savez(file, *hidden)
    codes.keep_all(done)
    (work / f"hidden {done - 1}.npz").unlink(missing_ok=True)
