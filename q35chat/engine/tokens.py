"""A run of tokens with everything a graph needs of them, and the record of those in the slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from q35chat.engine.session import Array
from q35chat.engine.slots import ImageRowsError


@dataclass(frozen=True, slots=True)
class Tokens:
    """`ids` and `keys` [T], `positions` [3, T], `is_image` [T] and the `rows` [M, H] of the M
    picture tokens; rows None where there are none."""

    ids: Array
    positions: Array
    keys: Array
    is_image: Array
    rows: Array | None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def image_ends(self) -> list[int]:
        """Picture tokens before each place, one entry more than there are tokens."""
        return [0, *np.cumsum(self.is_image).tolist()]

    def part(self, start: int, end: int) -> Tokens:
        """The tokens `start` to `end`."""
        first, last = (int(self.is_image[:place].sum()) for place in (start, end))
        return Tokens(
            self.ids[start:end],
            self.positions[:, start:end],
            self.keys[start:end],
            self.is_image[start:end],
            self.rows[first:last] if self.rows is not None and last > first else None,
        )

    def then(self, more: Tokens) -> Tokens:
        """These tokens with `more` behind them."""
        rows = [part.rows for part in (self, more) if part.rows is not None]
        return Tokens(
            np.concatenate([self.ids, more.ids]),
            np.concatenate([self.positions, more.positions], axis=1),
            np.concatenate([self.keys, more.keys]),
            np.concatenate([self.is_image, more.is_image]),
            np.concatenate(rows) if rows else None,
        )


def image_ends(tokens: Array, image_token_id: int | None, image_embeds: Array | None) -> Array:
    """Picture tokens before each place, [T + 1]. Raises ImageRowsError where their number is not
    that of the rows."""
    ends: Array = np.concatenate([[0], np.cumsum(tokens == image_token_id)])
    rows = 0 if image_embeds is None else len(image_embeds)
    if ends[-1] != rows:
        raise ImageRowsError(f"prompt has {ends[-1]} picture tokens but {rows} picture embeddings")
    return ends


class History:
    """What was read into the slots, so that a prefill without states can read it again."""

    def __init__(self) -> None:
        empty: Array = np.zeros(0, np.int64)
        self._tokens = Tokens(empty, np.zeros((3, 0), np.int64), empty, np.zeros(0, np.bool_), None)

    def upto(self, count: int) -> Tokens:
        """The first `count` tokens."""
        return self._tokens.part(0, count)

    def record(self, start: int, tokens: Tokens) -> None:
        """`tokens` fill the slots from `start` on; what lay there and behind is forgotten."""
        self._tokens = self.upto(start).then(tokens)
