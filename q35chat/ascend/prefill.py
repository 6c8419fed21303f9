"""A separate graph for prompts: pieces padded to its gears, from a state or from nothing.

Owns the reading of that graph's contract, its buffers, and the hand-over of its states to the
decode graph. Does not know which piece comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from q35chat.ascend.gears import Gear
from q35chat.ascend.growing_cache import GrowingCaches
from q35chat.engine.calls import Logits
from q35chat.engine.contract import (
    StatePair,
    TextContract,
    check_metadata,
    required,
    state_pairs,
)
from q35chat.engine.session import Array, BoundRun, Buffer, GraphSession, TensorSpec
from q35chat.engine.slots import PrefixMask, check_capacities
from q35chat.engine.states import BufferIndex, StateBuffers
from q35chat.errors import BundleError

_IDS, _MASK, _POSITIONS, _IMAGES = "input_ids", "attention_mask", "position_ids", "image_embeds"
_PAST_LEN, _LOGITS = "past_len", "logits"
_STACKED = ("present_conv_states", "present_recurrent_states", "present_kv_cache")
_ADVICE = "export prefill and decode together"
TOLD = "q35chat.kernels"
"""What kernels of this device cannot do, in a graph's metadata: `fresh-prefill`, a prefill must not
go on from a state; `exact-prefill`, it must not be padded; `single-steps`, a step has one token."""
ROWS = "q35chat.logits_rows"
"""Of how many of its last tokens a prefill has logits, in its metadata, where that is not one."""


@dataclass(frozen=True, slots=True)
class PrefillContract:
    """Inputs and outputs by name, and the lengths that are accepted; no gears: any length.

    `stateful`: it goes on from the states, else it starts from nothing. `every_token`: its logits
    are of all tokens, else of the last `rows` valid ones. `exact`: it must not be padded. `pasts`
    are states that it takes, of zeros where it is not stateful.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    gears: tuple[Gear, ...]
    stateful: bool
    every_token: bool
    exact: bool
    position_rows: int
    pasts: tuple[str, ...] = ()
    rows: int = 1

    @property
    def image_width(self) -> int | None:
        """Length of a row of picture embeddings, None for a graph that reads no pictures."""
        spec = self.inputs.get(_IMAGES)
        return None if spec is None else spec.shape[-1]


def read_prefill(session: GraphSession, decode: TextContract) -> PrefillContract:
    """The contract of a prefill graph, checked against that of its decode graph.

    Raises BundleError where they do not belong together, CapacityMismatchError where only their
    capacities differ.
    """
    check_metadata(session.metadata, "prefill")
    inputs = {spec.name: spec for spec in session.inputs}
    outputs = {spec.name: spec for spec in session.outputs}
    check_stacked(outputs)
    for name, specs in ((_IDS, inputs), (_MASK, inputs), (_POSITIONS, inputs), (_LOGITS, outputs)):
        if name not in specs:
            raise BundleError(f"prefill graph has no tensor {name!r}: {_ADVICE}")
    pasts = tuple(name for name in inputs if name.startswith("past_") and name != _PAST_LEN)
    told = session.metadata.get(TOLD, "").split(",")
    for pair in decode.pairs:
        _check_pair(pair, inputs, outputs, decode, session.metadata, stateful=bool(pasts))
    rows = inputs[_POSITIONS].shape[0]
    if rows not in (3, 4):
        raise BundleError(f"position_ids has {rows} rows, expected 3 or 4: {_ADVICE}")
    shape = outputs[_LOGITS].shape
    last_rows = session.metadata.get(ROWS, "")
    several = last_rows.isdecimal()
    every_token = not several and _every_token(shape, session.metadata, stateful=bool(pasts))
    return PrefillContract(
        inputs=inputs,
        outputs=outputs,
        gears=read_gears(session, inputs),
        stateful=bool(pasts) and "fresh-prefill" not in told,
        every_token=every_token,
        exact=every_token or "exact-prefill" in told,
        position_rows=rows,
        pasts=pasts,
        rows=int(last_rows) if several else 1,
    )


def decoding_contract(session: GraphSession, vocab_size: int) -> TextContract:
    """The contract of a prefill that also decodes, one token a call, as if it were a decode graph
    of the capacity of its caches. Raises BundleError."""
    check_metadata(session.metadata, "prefill")
    inputs = {spec.name: spec for spec in session.inputs}
    outputs = {spec.name: spec for spec in session.outputs}
    states = {name: spec for name, spec in inputs.items() if name != _PAST_LEN}
    pairs = state_pairs(states, outputs, session.metadata)
    capacity = next((pair.shape[-2] for pair in pairs if pair.cache), 0)
    if not capacity or Gear(1, 1) not in read_gears(session, inputs):
        raise BundleError(f"prefill graph has no KV cache or no gear of one token: {_ADVICE}")
    positions = required(inputs, _POSITIONS)
    return TextContract(
        input_ids=required(inputs, _IDS),
        attention_mask=required(inputs, _MASK),
        position_ids=positions,
        image_embeds=None,
        logits=required(outputs, _LOGITS),
        pairs=pairs,
        capacity=capacity,
        vocab_size=vocab_size,
        position_rows=positions.shape[0] or 0,
    )


def check_stacked(outputs: Mapping[str, TensorSpec]) -> None:
    """Refuse a graph with stacked states that has more or fewer outputs than logits and states."""
    if any(name in _STACKED for name in outputs) and set(outputs) != {_LOGITS, *_STACKED}:
        raise BundleError(
            f"the graph has {len(outputs)} outputs ({', '.join(outputs)}), exactly four are "
            f"wanted: logits, {', '.join(_STACKED)}: export the bundle again"
        )


def _every_token(
    shape: tuple[int | None, ...], metadata: Mapping[str, str], *, stateful: bool
) -> bool:
    """A file may not tell the rank before it has run; then only its maker can."""
    if len(shape) == 3:
        return shape[1] != 1
    return not stateful and metadata.get("q35chat.logits") != "last"


def _check_pair(
    pair: StatePair,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    decode: TextContract,
    metadata: Mapping[str, str],
    *,
    stateful: bool,
) -> None:
    if pair.present not in outputs:
        raise BundleError(f"prefill graph has no tensor {pair.present!r}: {_ADVICE}")
    shape = outputs[pair.present].shape
    if pair.cache and decode.capacity is not None:
        check_capacities(_slots(pair, shape, inputs, metadata) or decode.capacity, decode.capacity)
    if not pair.grows and shape and shape != pair.shape:
        raise BundleError(
            f"prefill and decode graphs have different states: {pair.present} is {shape}, "
            f"{pair.past} is {pair.shape}: {_ADVICE}"
        )
    if stateful:
        past = inputs.get(pair.past)
        if past is None or past.shape != pair.shape or past.dtype != pair.dtype:
            raise BundleError(
                f"prefill and decode graphs have different states ({pair.past}): {_ADVICE}"
            )


def _slots(
    pair: StatePair,
    present: tuple[int | None, ...],
    inputs: Mapping[str, TensorSpec],
    metadata: Mapping[str, str],
) -> int | None:
    """The prefill's capacity, from its output, its input, or what its maker says."""
    past = inputs.get(pair.past)
    for shape in (present, past.shape if past else ()):
        if len(shape) >= 4 and shape[-2] is not None:
            return shape[-2]
    told = metadata.get("q35chat.capacity", "")
    return int(told) if told.isdecimal() else None


def read_gears(session: GraphSession, inputs: Mapping[str, TensorSpec]) -> tuple[Gear, ...]:
    """From the session's metadata, or the one gear of a graph without free axes."""
    images = inputs.get(_IMAGES)
    fixed = 1 if images is None else images.shape[0]
    tokens = inputs[_IDS].shape[-1]
    gears = set()
    for text in filter(None, session.metadata.get("q35chat.gear_shapes", "").split(";")):
        sizes = dict(entry.split("=") for entry in text.split(","))
        gears.add(
            Gear(
                int(sizes.get(f"{_IDS}:1", tokens or 0)), int(sizes.get(f"{_IMAGES}:0", fixed or 1))
            )
        )
    if not gears and tokens is not None:
        gears.add(Gear(tokens, fixed or 1))
    return tuple(sorted(gears))


def empty_states(session: GraphSession, contract: PrefillContract) -> Mapping[str, Buffer]:
    """Zeros for a graph that takes states and must not go on from any; none for any other."""
    if contract.stateful:
        return {}
    made = {}
    for name in contract.pasts:
        shape = tuple(axis or 0 for axis in contract.inputs[name].shape)
        made[name] = session.allocate(shape, contract.inputs[name].dtype)
    return made


class PrefillCall:
    """A run in one gear. Buffers are made once; where states go straight to the decode graph's
    own buffers, nothing crosses to the host. `empty` are states of nothing, of `empty_states`."""

    def __init__(
        self,
        session: GraphSession,
        contract: PrefillContract,
        states: StateBuffers,
        caches: GrowingCaches,
        logits: Logits,
        gear: Gear,
        empty: Mapping[str, Buffer],
    ) -> None:
        self._contract = contract
        self._empty = empty
        self._states = states
        self._caches = caches
        self._arrays: dict[str, Array] = {}
        self._buffers: dict[str, Buffer] = {}
        shapes: dict[str, tuple[int, ...]] = {
            _IDS: (1, gear.tokens),
            _MASK: (1, gear.tokens),
            _POSITIONS: (contract.position_rows, 1, gear.tokens),
            _IMAGES: (gear.image_rows, contract.image_width or 0),
            _PAST_LEN: (1,),
        }
        for name, shape in shapes.items():
            if name in contract.inputs:
                dtype = contract.inputs[name].dtype
                self._arrays[name] = np.zeros(shape, dtype)
                self._buffers[name] = session.allocate(shape, dtype)
        self.logits = logits
        rows = gear.tokens if contract.every_token else contract.rows
        shape, dtype = (1, rows, logits.values.shape[-1]), contract.outputs[_LOGITS].dtype
        if contract.every_token or (shape, dtype) != (logits.values.shape, logits.values.dtype):
            self.logits = Logits(session.allocate(shape, dtype))
        self._own = {  # states whose dtype differs from the decode graph's, by output name
            pair.present: session.allocate(pair.shape, contract.outputs[pair.present].dtype)
            for pair in states.pairs
            if contract.outputs[pair.present].dtype != pair.dtype
        }
        self._grown: dict[str, Buffer] = {}  # caches, as long as this graph makes them
        for pair in caches.pairs:
            spec, (*outer, _, width) = contract.outputs[pair.present], pair.shape
            slots = spec.shape[-2] if len(spec.shape) >= 4 else None
            shape = (*outer, gear.tokens if slots is None else slots, width)
            self._grown[pair.present] = session.allocate(shape, spec.dtype)
        self._runs = (self._bound(session, 0), self._bound(session, 1))
        self._count = 0
        self._pictures = False

    def load(self, ids: Array, positions: Array, slot: int, images: Array | None) -> None:
        """Fill the inputs with `ids` [T] and pad them. `positions` is [3, T], `slot` the first
        slot, `images` the rows of the picture tokens among `ids`."""
        count = self._count = len(ids)
        arrays = self._arrays
        arrays[_IDS][0, :count], arrays[_IDS][0, count:] = ids, 0
        arrays[_MASK][0, :count], arrays[_MASK][0, count:] = 1, 0
        if self._contract.position_rows == 4:
            arrays[_POSITIONS][0, 0] = np.arange(slot, slot + arrays[_IDS].shape[1])
        arrays[_POSITIONS][-3:, 0, :count] = positions
        arrays[_POSITIONS][-3:, 0, count:] = 0
        if _PAST_LEN in arrays:
            arrays[_PAST_LEN][0] = slot
        pictures = images is not None
        if images is not None:
            arrays[_IMAGES][: len(images)], arrays[_IMAGES][len(images) :] = images, 0
        for name, array in arrays.items():
            if name != _IMAGES or pictures or self._pictures:
                self._buffers[name].write(array)
        self._pictures = pictures

    @property
    def hidden(self) -> None:
        """It does not tell what the model made of its tokens."""

    def upload(self, mask: PrefixMask) -> None:
        """The mask of a prefill is over its own tokens."""

    def run(self) -> None:
        """Run once and hand the states over."""
        states = self._states
        self._runs[states.current]()
        written = states.outputs(states.current)
        for name, buffer in self._own.items():
            array = buffer.host().astype(written[name].dtype)
            written[name].write(array.reshape(written[name].shape))
        for name, buffer in self._grown.items():
            self._caches.put(name, buffer.host(), self._count)
        states.flip()
        self._caches.flip()

    @property
    def last_row(self) -> int:
        """The row of `logits` that is the last valid token's."""
        return (self._count if self._contract.every_token else self._contract.rows) - 1

    def _bound(self, session: GraphSession, index: BufferIndex) -> BoundRun:
        inputs = dict(self._buffers) | dict(self._empty)
        if self._contract.stateful:
            inputs |= self._states.inputs(index)
        outputs = dict(self._states.outputs(index)) | self._own | self._grown
        return session.bind(inputs, {_LOGITS: self.logits.values} | outputs)
