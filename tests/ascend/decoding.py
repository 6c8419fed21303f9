"""What the tests of the engine over 310P graphs share: one shape, one prompt, how to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from q35chat.ascend.options import NpuOptions
from q35chat.engine.decoder import Decoder, extend
from q35chat.engine.session import Array
from tests.support.ascend import AscendChat, Exported
from tests.support.lite import LiteGraphs

SHAPE = "plain"
IDS = [3, 7, 9, 11, 2, 5, 6, 8, 10, 12, 13]
GEARS = {"gears": (8, 16, 32), "image_gears": (4, 16)}
HOST = NpuOptions(host_state_roundtrip=True)

Open = Callable[..., LiteGraphs]


def by_hand(
    exported: Callable[..., Exported], ids: list[int], count: int, **options: Any
) -> list[int]:
    """The greedy tokens of the graphs fed without the engine."""
    chat = AscendChat(exported(SHAPE, **{**GEARS, **options}))
    return chat.greedy(chat.prefill(ids), count)


def read(decoder: Decoder, ids: list[int], images: Array | None = None) -> Array:
    """The logits [V] after `ids`, a copy."""
    start = decoder.rope_position
    positions = np.tile(np.arange(start, start + len(ids)), (3, 1))
    logits = extend(decoder, np.array(ids), positions, images)
    return logits.copy()


def greedy(decoder: Decoder, logits: Array, count: int) -> list[int]:
    """`count` tokens, the first of them chosen from `logits`."""
    tokens = [int(logits.argmax())]
    while len(tokens) < count:
        tokens.append(int(decoder.step(tokens[-1]).argmax()))
    return tokens
