"""A text graph in numpy: tiny, deterministic, with every kind of state of the contract.

Reads token by token, so that chunks and steps give the same bits. Counts what it allocates and
binds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from q35chat.engine.session import Array, Buffer, TensorSpec, check_fit, check_slots

FLOAT = np.dtype(np.float32)
IMAGE_TOKEN = 5
_ANGLES: Array = np.array([0.1, 0.3, 0.7], FLOAT)


@dataclass(slots=True)
class NumpyBuffer:
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def write(self, array: Array) -> None:
        check_fit(array, self.shape, self.dtype)
        self.array[...] = array

    def write_slots(self, rows: Array) -> None:
        check_slots(rows, self.shape, self.dtype)
        self.array[..., : rows.shape[-2], :] = rows

    def head_rows(self, head: int, shape: tuple[int, ...]) -> NumpyBuffer:
        rows = self.array[0, head, : math.prod(shape)]
        return NumpyBuffer(rows.reshape(*shape, self.shape[-1]))

    def host(self) -> Array:
        return self.array


@dataclass(slots=True)
class NumpySession:
    """The session and its model. `rows` is 3 or 4, `in_place` shares the KV buffers, `aliases`
    lets the other states be written over.

    Where `says` has the last slot read, its token is by far the likeliest to follow. With
    `counts` there are logits of as many of the last tokens as `logits_count` says; with `tells`
    there are the hidden states of all tokens, for a draft head; with `blocks` the maxima of so many
    blocks of logits.
    """

    capacity: int = 16
    vocab: int = 23
    width: int = 6
    rows: int = 3
    in_place: bool = True
    aliases: bool = True
    counts: bool = False
    tells: bool = False
    blocks: int = 0
    integers: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int64))
    image_token: int = IMAGE_TOKEN
    says: dict[int, int] = field(default_factory=dict)
    before_run: Callable[[], None] = lambda: None
    allocated: int = 0
    bound: int = 0
    runs: list[int] = field(default_factory=list)
    closed: bool = False
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = np.random.default_rng(3)
        self.metadata.update({"q35chat.contract": "1", "q35chat.graph": "text"})
        if self.in_place:
            self.metadata["q35chat.in_place"] = "past_key_1,past_value_1"
        if self.aliases:
            self.metadata["q35chat.may_alias"] = "past_conv_0,past_recurrent_0"
        self._embed = random.normal(size=(self.vocab, self.width)).astype(FLOAT)
        self._head = random.normal(size=(self.vocab, self.width)).astype(FLOAT)

    _embed: Array = field(init=False)
    _head: Array = field(init=False)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("input_ids", (1, None), self.integers),
            TensorSpec("attention_mask", (1, self.capacity), np.dtype(np.int32)),
            TensorSpec("position_ids", (self.rows, 1, None), self.integers),
            TensorSpec("image_embeds", (None, self.width), FLOAT),
            *([TensorSpec("logits_count", (1,), self.integers)] if self.counts else ()),
            *(TensorSpec(f"past_{name}", shape, FLOAT) for name, shape in self._states()),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("logits", (1, None if self.counts else 1, self.vocab), FLOAT),
            *([TensorSpec("logits_maxima", (1, None, self.blocks), FLOAT)] if self.blocks else ()),
            *([TensorSpec("hidden", (1, None, self.width), FLOAT)] if self.tells else ()),
            *(TensorSpec(f"present_{name}", shape, FLOAT) for name, shape in self._states()),
        )

    def _states(self) -> list[tuple[str, tuple[int, ...]]]:
        width = self.width
        return [
            ("conv_0", (1, width, 3)),
            ("recurrent_0", (1, 1, width, width)),
            ("key_1", (1, 1, self.capacity, width)),
            ("value_1", (1, 1, self.capacity, width)),
        ]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        self.allocated += 1
        return NumpyBuffer(np.zeros(shape, dtype))

    def bind(
        self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]
    ) -> Callable[[], None]:
        reads, writes = arrays(inputs, self.inputs), arrays(outputs, self.outputs)
        self.bound += 1
        for name, _ in self._states():
            shared = reads[f"past_{name}"] is writes[f"present_{name}"]
            if name.startswith(("key", "value")):
                assert shared == self.in_place
            else:
                assert self.aliases or not shared
        return lambda: self._run(reads, writes)

    def close(self) -> None:
        self.closed = True

    def _run(self, reads: Mapping[str, Array], writes: Mapping[str, Array]) -> None:
        self.before_run()
        ids = reads["input_ids"][0]
        self.runs.append(len(ids))
        state = {name: reads[f"past_{name}"].copy() for name, _ in self._states()}
        slot = int(reads["attention_mask"].sum()) - len(ids)
        assert slot >= 0
        if self.rows == 4:
            assert reads["position_ids"][0, 0].tolist() == list(range(slot, slot + len(ids)))
        image = 0
        logits = writes["logits"][0]
        first = len(ids) - len(logits)
        assert len(logits) == (reads["logits_count"][0] if self.counts else 1)
        for place, token in enumerate(ids):
            x = self._embed[token]
            if token == self.image_token and image < len(reads["image_embeds"]):
                x, image = reads["image_embeds"][image], image + 1
            angle = reads["position_ids"][-3:, 0, place].astype(FLOAT) @ _ANGLES
            hidden = self._token(x * np.cos(angle), state, slot + place)
            if self.tells:
                writes["hidden"][0, place] = hidden
            if place >= first:
                logits[place - first] = self._head @ hidden
                if (said := self.says.get(slot + place)) is not None:
                    logits[place - first, said] += 1e4
        if self.blocks:
            blocks = logits.reshape(len(logits), self.blocks, -1)
            writes["logits_maxima"][0] = blocks.max(axis=-1)
        for name, array in state.items():
            writes[f"present_{name}"][...] = array

    def _token(self, x: Array, state: dict[str, Array], slot: int) -> Array:
        conv, memory = state["conv_0"], state["recurrent_0"]
        mixed = x + conv[0].sum(axis=1) * np.float32(0.5)
        state["conv_0"] = np.concatenate([conv[:, :, 1:], x[None, :, None]], axis=2)
        memory[0, 0] = memory[0, 0] * np.float32(0.8) + np.outer(np.tanh(mixed), x)
        keys, values = state["key_1"][0, 0], state["value_1"][0, 0]
        keys[slot], values[slot] = mixed, memory[0, 0] @ mixed
        weights = np.exp(np.tanh(keys[: slot + 1] @ mixed))
        hidden: Array = np.tanh(mixed + weights @ values[: slot + 1] / weights.sum())
        return hidden


def arrays(buffers: Mapping[str, Buffer], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The arrays of buffers that are bound to all of `specs` and nothing else."""
    assert set(buffers) == {spec.name for spec in specs}
    found: dict[str, Array] = {}
    for name, buffer in buffers.items():
        assert isinstance(buffer, NumpyBuffer)
        found[name] = buffer.array
    return found
