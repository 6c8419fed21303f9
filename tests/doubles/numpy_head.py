"""A draft head in numpy beside `NumpySession`: tiny, deterministic, pair by pair.

Its cache holds all that it was given, so that caches can be compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from q35chat.engine.session import Array, Buffer, TensorSpec
from tests.doubles.numpy_session import FLOAT, IMAGE_TOKEN, NumpyBuffer, arrays

INT = np.dtype(np.int64)


@dataclass(slots=True)
class NumpyHead:
    """The session and its layer. Where `says` has the slot of a pair, that is drafted after it.

    `runs` are the tokens and the first slot of each run.
    """

    capacity: int = 16
    vocab: int = 23
    width: int = 6
    image_token: int = IMAGE_TOKEN
    says: dict[int, int] = field(default_factory=dict)
    before_run: Callable[[], None] = lambda: None
    runs: list[tuple[int, int]] = field(default_factory=list)
    closed: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    caches: dict[str, Array] = field(default_factory=dict)
    _embed: Array = field(init=False)

    def __post_init__(self) -> None:
        self.metadata.update(
            {
                "q35chat.contract": "1",
                "q35chat.graph": "mtp",
                "q35chat.in_place": "past_key_0,past_value_0",
            }
        )
        random = np.random.default_rng(4)
        self._embed = random.normal(size=(self.vocab, self.width)).astype(FLOAT)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("input_ids", (1, None), INT),
            TensorSpec("hidden", (1, None, self.width), FLOAT),
            TensorSpec("attention_mask", (1, self.capacity), np.dtype(np.int32)),
            TensorSpec("position_ids", (3, 1, None), INT),
            TensorSpec("image_embeds", (None, self.width), FLOAT),
            *(TensorSpec(f"past_{name}", shape, FLOAT) for name, shape in self._states()),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return (
            TensorSpec("draft", (1, 1), INT),
            TensorSpec("next_hidden", (1, 1, self.width), FLOAT),
            *(TensorSpec(f"present_{name}", shape, FLOAT) for name, shape in self._states()),
        )

    def _states(self) -> list[tuple[str, tuple[int, ...]]]:
        """The key is what came in: hidden state, embedding and positions."""
        return [
            ("key_0", (1, 1, self.capacity, 2 * self.width + 3)),
            ("value_0", (1, 1, self.capacity, self.width)),
        ]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        return NumpyBuffer(np.zeros(shape, dtype))

    def bind(
        self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]
    ) -> Callable[[], None]:
        reads, writes = arrays(inputs, self.inputs), arrays(outputs, self.outputs)
        for name, _ in self._states():
            assert reads[f"past_{name}"] is writes[f"present_{name}"]
            self.caches[name] = reads[f"past_{name}"]
        return lambda: self._run(reads, writes)

    def close(self) -> None:
        self.closed = True

    def _run(self, reads: Mapping[str, Array], writes: Mapping[str, Array]) -> None:
        self.before_run()
        ids = reads["input_ids"][0]
        first = int(reads["attention_mask"].sum()) - len(ids)
        assert 0 <= first < self.capacity
        self.runs.append((len(ids), first))
        keys, values = reads["past_key_0"][0, 0], reads["past_value_0"][0, 0]
        image = 0
        for place, token in enumerate(ids):
            x = self._embed[token]
            if token == self.image_token and image < len(reads["image_embeds"]):
                x, image = reads["image_embeds"][image], image + 1
            hidden, slot = reads["hidden"][0, place], first + place
            keys[slot] = np.concatenate([hidden, x, reads["position_ids"][:, 0, place]])
            values[slot] = np.tanh(x + hidden)
            mixed: Array = np.tanh(values[: slot + 1].mean(axis=0) + values[slot])
        writes["next_hidden"][0, 0] = mixed
        likeliest = int((self._embed @ mixed).argmax())
        writes["draft"][0, 0] = self.says.get(first + len(ids) - 1, likeliest)
