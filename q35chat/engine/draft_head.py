"""The checkpoint's own head for drafts: one layer that guesses what follows the token after next.

It reads pairs: what the decoder made of a token, and the token that came after it. Slot t of its
cache holds the pair of token t, so the last token waits until the next one is chosen. Owns that
cache, the pairs not read yet, and the chaining of drafts. A wrong cache could only make drafts
worse: the decoder checks every one. Knows neither the decoder nor whether drafts pay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from q35chat.engine.contract import TextContract, check_metadata, required, state_pairs
from q35chat.engine.session import Array, Buffer, GraphSession, TensorSpec, check_fit
from q35chat.engine.slots import PrefixMask, check_capacities
from q35chat.engine.states import LastToken, StateBuffers, named
from q35chat.errors import BundleError, Remedy

_KIND = "mtp"
_OWN = "mtp_"
_NAMES = ("mtp_hidden", "mtp_position")
_INPUTS = ("input_ids", "hidden", "position_ids", "image_embeds")
_MOST_WAITING = 64
_MOST_CALLS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """`hidden` [N, H] of tokens at `positions` [3, N], and the `ids` [N] that came after them."""

    ids: Array
    positions: Array
    hidden: Array

    def __len__(self) -> int:
        return len(self.ids)

    def then(self, more: Pairs) -> Pairs:
        """These with `more` behind them."""
        return Pairs(
            np.concatenate([self.ids, more.ids]),
            np.concatenate([self.positions, more.positions], axis=1),
            np.concatenate([self.hidden, more.hidden]),
        )


class DraftHead:
    """The head's graph with its cache. `milliseconds` is what the last draft took in the runtime.

    Raises BundleError where the graph does not fit `decoder`, the contract of the graph it is for.
    """

    def __init__(self, session: GraphSession, decoder: TextContract) -> None:
        check_metadata(session.metadata, _KIND)
        self._session = session
        inputs = {spec.name: spec for spec in session.inputs}
        outputs = {spec.name: spec for spec in session.outputs}
        mask, hidden = (required(inputs, name, _KIND) for name in ("attention_mask", "hidden"))
        self._inputs = {name: required(inputs, name, _KIND) for name in _INPUTS}
        pairs = state_pairs(inputs, outputs, session.metadata)
        if decoder.hidden is None or decoder.capacity is None:
            raise BundleError(
                "the text graph gives a draft head nothing to read:", Remedy.EXPORT_WITH_HEAD
            )
        if decoder.hidden.shape[-1] != hidden.shape[-1]:
            raise BundleError(
                f"the text graph gives rows of {decoder.hidden.shape[-1]} numbers, its draft head "
                f"takes {hidden.shape[-1]}:",
                Remedy.EXPORT_WITH_HEAD,
            )
        check_capacities(decoder.capacity, mask.shape[-1] or 0)
        self._mask = PrefixMask(mask.shape[-1] or 0, mask.dtype)
        self._states = states = StateBuffers(session, pairs)
        self._fixed = dict(states.inputs(0)) | {mask.name: _buffer(session, mask)}
        self._drafted = _buffer(session, required(outputs, "draft", _KIND))
        self._next = _buffer(session, required(outputs, "next_hidden", _KIND))
        results = {"draft": self._drafted, "next_hidden": self._next}
        self._outputs = dict(states.outputs(0)) | results
        self._calls: dict[tuple[int, int], _HeadCall] = {}
        self._none = Pairs(
            np.zeros(0, np.int64),
            np.zeros((3, 0), np.int64),
            np.zeros((0, hidden.shape[-1] or 0), hidden.dtype),
        )
        self.milliseconds = 0.0
        self.restore(0, None)

    def restore(self, count: int, last: LastToken | None) -> None:
        """The sequence is what its first `count` tokens were, of which `last` is the last."""
        self._count = max(0, count - 1)
        self._last = last
        self._waiting = self._none
        self._drafted_for: int | None = None

    def save(self) -> LastToken | None:
        """Read what waits; what `restore` needs to come back here."""
        self._catch_up()
        return self._last

    def dump(self, count: int, last: LastToken | None) -> Iterator[tuple[str, Array]]:
        """What is there of the first `count` tokens, of which `last` is the last, as arrays by
        name."""
        assert last is not None
        yield _NAMES[0], last.hidden
        yield _NAMES[1], last.position
        for name, rows in self._states.rows(count - 1):
            yield _OWN + name, rows

    def load(self, arrays: Mapping[str, Array], count: int) -> None:
        """Be where `arrays` were dumped. Raises ValueError where they do not fit."""
        hidden, position = (named(arrays, name).copy() for name in _NAMES)
        check_fit(hidden, self._none.hidden.shape[1:], self._none.hidden.dtype)
        check_fit(position, (3,), self._none.positions.dtype)
        own = {name[len(_OWN) :]: rows for name, rows in arrays.items() if name.startswith(_OWN)}
        self._states.fill(own, count - 1)
        self.restore(count, LastToken(hidden, position))

    def read(self, ids: Array, positions: Array, hidden: Array, rows: Array | None = None) -> None:
        """The decoder read `ids` [N] at `positions` [3, N] and made `hidden` [N, H] of them; `rows`
        are the embeddings of the picture tokens among them."""
        pairs = Pairs(ids[1:], positions[:, :-1], hidden[:-1])
        if self._last is not None:
            if rows is None and self._drafted_for == ids[0]:
                self._count += 1  # read when it was drafted for
            else:
                pairs = self._after_last(ids[:1]).then(pairs)
        self._drafted_for = None
        self._last = LastToken(hidden[-1].copy(), positions[:, -1].copy())
        if rows is not None:
            self._catch_up()
            self._run(pairs, self._count, rows)
            self._count += len(pairs)
            return
        self._waiting = self._waiting.then(pairs)
        if len(self._waiting) >= _MOST_WAITING:
            self._catch_up()

    def draft(self, token: int, most: int, position: int) -> list[int]:
        """At most `most` tokens that may follow `token`, which the decoder reads next, at the
        rotary `position`. The caller sees to it that there are as many slots."""
        self.milliseconds = 0.0
        if self._last is None or most < 1:
            return []
        waiting = len(self._waiting)
        self._run(self._waiting.then(self._after_last(np.array([token]))), self._count)
        self._count += waiting
        self._waiting, self._drafted_for = self._none, token
        drafts = [int(self._drafted.host().ravel()[0])]
        while len(drafts) < most:
            place = np.full((3, 1), position + len(drafts) - 1)
            guess = Pairs(np.array(drafts[-1:]), place, self._next.host()[0])
            self._run(guess, self._count + len(drafts))
            drafts.append(int(self._drafted.host().ravel()[0]))
        return drafts

    def _after_last(self, ids: Array) -> Pairs:
        assert self._last is not None
        return Pairs(ids, self._last.position[:, None], self._last.hidden[None])

    def _catch_up(self) -> None:
        if len(self._waiting):
            self._run(self._waiting, self._count)
            self._count += len(self._waiting)
            self._waiting = self._none
            self._drafted_for = None

    def _run(self, pairs: Pairs, slot: int, rows: Array | None = None) -> None:
        """Write `pairs` into the cache from `slot` on."""
        if not len(pairs):
            return
        shape = (len(pairs), 0 if rows is None else len(rows))
        if shape not in self._calls:
            if len(self._calls) == _MOST_CALLS:
                self._calls.clear()
            self._calls[shape] = _HeadCall(
                self._session, self._inputs, self._fixed, self._outputs, *shape
            )
        call = self._calls[shape]
        self._mask.rewind(slot + len(pairs))
        self._fixed["attention_mask"].write(self._mask.array)
        call.load(pairs, rows)
        started = perf_counter()
        call.run()
        self.milliseconds += (perf_counter() - started) * 1e3


class _HeadCall:
    """A run over so many pairs and rows of pictures; its buffers are made once."""

    def __init__(
        self,
        session: GraphSession,
        inputs: Mapping[str, TensorSpec],
        fixed: Mapping[str, Buffer],
        outputs: Mapping[str, Buffer],
        tokens: int,
        rows: int,
    ) -> None:
        width = inputs["hidden"].shape[-1] or 0
        shapes = {
            "input_ids": (1, tokens),
            "hidden": (1, tokens, width),
            "position_ids": (3, 1, tokens),
            "image_embeds": (rows, width),
        }
        self._buffers = {
            name: session.allocate(shape, inputs[name].dtype) for name, shape in shapes.items()
        }
        self.run = session.bind(self._buffers | dict(fixed), outputs)

    def load(self, pairs: Pairs, rows: Array | None) -> None:
        """Fill the inputs."""
        arrays = (pairs.ids, pairs.hidden, pairs.positions, rows)
        for buffer, array in zip(self._buffers.values(), arrays, strict=True):
            if array is not None:
                buffer.write(array.reshape(buffer.shape).astype(buffer.dtype, copy=False))


def _buffer(session: GraphSession, spec: TensorSpec) -> Buffer:
    return session.allocate(tuple(axis or 1 for axis in spec.shape), spec.dtype)
