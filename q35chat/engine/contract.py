"""What a text graph promises, read from its own names, shapes and metadata.

Owns the reading of the contract: roles of the inputs, state pairs, capacity. Knows nothing of
buffers or of how the graph runs. Capacity comes from the shapes and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from q35chat.engine.session import GraphSession, TensorSpec
from q35chat.errors import BundleError

CONTRACT_VERSION = "1"
IN_PLACE, MAY_ALIAS = "q35chat.in_place", "q35chat.may_alias"
FILLED_PART = "q35chat.filled_part"
_PAST, _PRESENT, _FILLED = "past_", "present_", "filled_"
_WORTH_SLOTS, _ROWS = 640, 16
_CACHES = ("key_", "value_", "kv_cache")
_ADVICE = "export the bundle again"


@dataclass(frozen=True, slots=True)
class StatePair:
    """One state: read from `past`, written to `present`, both of one fixed shape and dtype.

    A `cache` has one slot per token on its second-last axis and only ever grows; any other
    state is overwritten as a whole. `in_place` pairs share one buffer, those that `may_alias` can.
    A pair that `grows` comes out one slot longer than it goes in; that axis of its `shape` is 0.
    """

    past: str
    present: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    cache: bool
    in_place: bool
    grows: bool = False
    may_alias: bool = False


@dataclass(frozen=True, slots=True)
class HeadRows:
    """The input `name`: the first slots of one `head` of the cache `past`, where they lie, as
    `[S, HD]` or, `in_parts`, `[B, 1, S / B, HD]`."""

    name: str
    past: str
    head: int
    in_parts: bool


class Parts(NamedTuple):
    """The first slots of caches: a `number` of parts of so many `rows`."""

    number: int
    rows: int


NO_PARTS = Parts(0, 0)


@dataclass(frozen=True, slots=True)
class TextContract:
    """The inputs by role, the states and the fixed sizes of a text graph.

    `image_embeds` is None in a graph that reads no pictures. `position_rows` is 3 (temporal,
    height, width) or 4 (the text position first). `capacity` is None where the caches grow.
    `logits_count` says of how many of the last tokens there are logits; None in a graph that has
    them of the last only. `maxima` are the largest of each block of neighbouring logits, blocks of
    one size; None where the graph does not tell them. `hidden` is what a draft head reads, of every
    token. `filled` are the inputs that have the filled slots of the caches once more, head by head,
    in parts of at most `filled_part` slots, for one token to read; with none of them it reads the
    caches.
    """

    input_ids: TensorSpec
    attention_mask: TensorSpec
    position_ids: TensorSpec
    image_embeds: TensorSpec | None
    logits: TensorSpec
    pairs: tuple[StatePair, ...]
    capacity: int | None
    vocab_size: int
    position_rows: int
    logits_count: TensorSpec | None = None
    maxima: TensorSpec | None = None
    hidden: TensorSpec | None = None
    filled: tuple[HeadRows, ...] = ()
    filled_part: int = 0

    def filled_parts(self, used: int) -> Parts:
        """What a step behind `used` tokens reads of each input of `filled`, its own slot with them:
        nothing where that takes as long as reading the caches."""
        if not self.filled_part or used < _WORTH_SLOTS:
            return NO_PARTS
        slots = min(used + 1, self.capacity or 0)
        number = -(-slots // self.filled_part)
        rows = -(-slots // (number * _ROWS)) * _ROWS
        return Parts(number, min(rows, self.filled_part))

    @property
    def may_overwrite(self) -> bool:
        """Whether a run can write every state over the one that it reads."""
        return all(pair.in_place or pair.may_alias for pair in self.pairs)


def read_contract(session: GraphSession, vocab_size: int | None = None) -> TextContract:
    """The contract of a text graph. Raises BundleError when the graph contradicts itself.

    A file may lose the rank of its outputs until it has run; `vocab_size` is used then.
    """
    metadata = session.metadata
    check_metadata(metadata, "text", "decode")
    inputs = {spec.name: spec for spec in session.inputs}
    outputs = {spec.name: spec for spec in session.outputs}
    pairs = state_pairs(inputs, outputs, metadata)
    mask = required(inputs, "attention_mask")
    position_ids = required(inputs, "position_ids")
    logits = required(outputs, "logits")
    length = vocab_size if vocab_size and not logits.shape else fixed_axis(logits, -1)
    capacity = _capacity(mask, pairs)
    filled = _filled(inputs, pairs)
    return TextContract(
        input_ids=required(inputs, "input_ids"),
        attention_mask=mask,
        position_ids=position_ids,
        image_embeds=inputs.get("image_embeds"),
        logits=logits,
        pairs=pairs,
        capacity=capacity,
        vocab_size=length,
        position_rows=_position_rows(position_ids),
        logits_count=inputs.get("logits_count"),
        maxima=_maxima(outputs.get("logits_maxima"), length),
        hidden=outputs.get("hidden"),
        filled=filled,
        filled_part=_filled_part(metadata, capacity) if filled else 0,
    )


def check_metadata(metadata: Mapping[str, str], *kinds: str) -> None:
    """Refuse a graph of another contract, or that is none of `kinds`."""
    version = metadata.get("q35chat.contract")
    if version != CONTRACT_VERSION:
        found = "none" if version is None else repr(version)
        raise BundleError(
            f"text graph has contract version {found}, this program reads "
            f"{CONTRACT_VERSION!r}: {_ADVICE}"
        )
    kind = metadata.get("q35chat.graph", kinds[0])
    if kind not in kinds:
        raise BundleError(f"expected a {kinds[0]} graph, found a {kind} graph: {_ADVICE}")


def required(specs: Mapping[str, TensorSpec], name: str, kind: str = "text") -> TensorSpec:
    """The tensor `name` of a graph of the `kind`; BundleError where it has none."""
    if name not in specs:
        raise BundleError(f"{kind} graph has no tensor {name!r}: {_ADVICE}")
    return specs[name]


def fixed_axis(spec: TensorSpec, axis: int) -> int:
    """The size of an axis that must be fixed. Raises BundleError."""
    size = spec.shape[axis] if len(spec.shape) >= abs(axis) else None
    if size is None or size <= 0:
        raise BundleError(f"axis {axis} of {spec.name} {spec.shape} must be fixed: {_ADVICE}")
    return size


def _maxima(spec: TensorSpec | None, vocab_size: int) -> TensorSpec | None:
    if spec is not None and vocab_size % fixed_axis(spec, -1):
        raise BundleError(
            f"{spec.name} {spec.shape} does not divide {vocab_size} logits into blocks: {_ADVICE}"
        )
    return spec


def _filled(inputs: Mapping[str, TensorSpec], pairs: Iterable[StatePair]) -> tuple[HeadRows, ...]:
    """The inputs that are rows of a cache. Raises BundleError."""
    caches = {pair.past: pair.shape for pair in pairs if pair.in_place}
    found = []
    for name in inputs:
        if name.startswith(_FILLED):
            rest, _, head = name.removeprefix(_FILLED).rpartition("_")
            past = _PAST + rest
            heads = caches[past][1] if len(caches.get(past, ())) == 4 else 0
            if not head.isdecimal() or int(head) >= heads:
                raise BundleError(f"{name} is no head of a KV cache in place: {_ADVICE}")
            found.append(HeadRows(name, past, int(head), in_parts=len(inputs[name].shape) == 4))
    return tuple(found)


def _filled_part(metadata: Mapping[str, str], capacity: int | None) -> int:
    """The size of a part; 0 in older graphs, whose rows are in blocks. Raises BundleError."""
    told = metadata.get(FILLED_PART)
    if told is None:
        return 0
    part = int(told) if told.isdecimal() else 0
    if not part or not capacity or capacity % part:
        raise BundleError(f"parts of {told or 'no'} slots do not fill {capacity}: {_ADVICE}")
    return part


def _position_rows(spec: TensorSpec) -> int:
    rows = fixed_axis(spec, 0)
    if rows not in (3, 4):
        raise BundleError(f"position_ids has {rows} rows, expected 3 or 4: {_ADVICE}")
    return rows


def shared_names(metadata: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """The inputs that share a buffer with their output, and those that may."""
    in_place, may_alias = (
        frozenset(name.strip() for name in metadata.get(key, "").split(",") if name.strip())
        for key in (IN_PLACE, MAY_ALIAS)
    )
    return in_place, may_alias


def state_pairs(
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    metadata: Mapping[str, str],
) -> tuple[StatePair, ...]:
    """The states of a graph. Raises BundleError."""
    in_place, may_alias = shared_names(metadata)
    pasts = [name for name in inputs if name.startswith(_PAST)]
    presents = {name for name in outputs if name.startswith(_PRESENT)}
    _check_names("states promised in place", (in_place | may_alias) - set(pasts))
    caches = {name for name in may_alias if name.removeprefix(_PAST).startswith(_CACHES)}
    _check_names("KV caches that may be in place but need not", caches)
    _check_names(
        "states that come out without going in",
        presents - {_PRESENT + name.removeprefix(_PAST) for name in pasts},
    )
    pairs = (_pair(inputs[name], outputs, name in in_place) for name in pasts)
    return tuple(replace(pair, may_alias=pair.past in may_alias) for pair in pairs)


def _check_names(what: str, names: Iterable[str]) -> None:
    if found := sorted(names):
        raise BundleError(f"text graph has {what}: {', '.join(found)}: {_ADVICE}")


def _pair(past: TensorSpec, outputs: Mapping[str, TensorSpec], in_place: bool) -> StatePair:
    name = past.name.removeprefix(_PAST)
    present = required(outputs, _PRESENT + name)
    cache = name.startswith(_CACHES)
    if cache and _is_growing(past, present):
        shape = tuple(0 if axis is None else axis for axis in past.shape)
        return StatePair(past.name, present.name, shape, past.dtype, cache, False, grows=True)
    if (present.shape and past.shape != present.shape) or past.dtype != present.dtype:
        raise BundleError(
            f"{past.name} is {past.dtype}{past.shape} but {present.name} is "
            f"{present.dtype}{present.shape}: {_ADVICE}"
        )
    shape = tuple(fixed_axis(past, axis) for axis in range(len(past.shape)))
    if in_place and not cache:
        raise BundleError(f"{past.name} is promised in place but is no KV cache: {_ADVICE}")
    return StatePair(past.name, present.name, shape, past.dtype, cache, in_place)


def _is_growing(past: TensorSpec, present: TensorSpec) -> bool:
    """Only the axis of slots is free, on both sides; a lost rank is one that changes."""
    if past.dtype != present.dtype or len(past.shape) < 4 or past.shape[-2] is not None:
        return False
    others = tuple(axis for place, axis in enumerate(past.shape) if place != len(past.shape) - 2)
    if present.shape and (len(present.shape) != len(past.shape) or present.shape[-2] is not None):
        return False
    return None not in others


def _capacity(mask: TensorSpec, pairs: Iterable[StatePair]) -> int | None:
    """The slots of a graph of fixed capacity; None where every cache grows with the mask."""
    caches = [pair for pair in pairs if pair.cache]
    if caches and all(pair.grows for pair in caches) and mask.shape[-1] is None:
        return None
    capacity = fixed_axis(mask, -1)
    for pair in caches:
        if pair.shape[-2] != capacity:
            raise BundleError(
                f"attention_mask has {capacity} slots but {pair.past} has {pair.shape[-2]}: "
                f"{_ADVICE}"
            )
    return capacity
