"""A run of tokens with everything that a graph needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from q35chat.engine.session import Array, check_fit
from q35chat.engine.slots import ImageRowsError
from q35chat.engine.states import named

_NAMES = ("token_ids", "token_positions", "token_is_image")
_ROWS = "token_rows"


@dataclass(frozen=True, slots=True)
class Tokens:
    """`ids` and `keys` [T], `positions` [3, T], `is_image` [T] and the `rows` [M, H] of the M
    picture tokens; rows None where there are none."""

    ids: Array
    positions: Array
    keys: Array
    is_image: Array
    rows: Array | None

    @classmethod
    def of(
        cls,
        ids: Array,
        positions: Array,
        image_embeds: Array | None,
        keys: Array | None,
        image_token_id: int | None,
    ) -> Tokens:
        """The arguments of `Decoder.chunks`; raises ImageRowsError where the number of picture
        tokens is not that of the rows."""
        is_image = np.asarray(ids == image_token_id)
        pictures, rows = int(is_image.sum()), 0 if image_embeds is None else len(image_embeds)
        if pictures != rows:
            raise ImageRowsError(
                f"prompt has {pictures} picture tokens but {rows} picture embeddings"
            )
        return cls(ids, positions, ids if keys is None else keys, is_image, image_embeds)

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

    def dump(self) -> Iterator[tuple[str, Array]]:
        """All but the keys as arrays by name."""
        yield from zip(_NAMES, (self.ids, self.positions, self.is_image), strict=True)
        if self.rows is not None:
            yield _ROWS, self.rows

    @classmethod
    def dumped(cls, arrays: Mapping[str, Array], keys: Array, width: int | None) -> Tokens:
        """What `dump` gave of tokens with these keys; `width` is that of a row. Raises ValueError
        where something is missing or does not fit."""
        ids, positions, is_image = (named(arrays, name).copy() for name in _NAMES)
        count, pictures = len(keys), int(is_image.sum())
        check_fit(ids, (count,), np.dtype(np.int64))
        check_fit(positions, (3, count), np.dtype(np.int64))
        check_fit(is_image, (count,), np.dtype(np.bool_))
        rows = arrays[_ROWS].copy() if _ROWS in arrays else None
        if (0 if rows is None else len(rows)) != pictures:
            raise ValueError(f"{pictures} picture tokens have other rows")
        if rows is not None:
            check_fit(rows, (pictures, width or 0), rows.dtype)
        return cls(ids, positions, keys.copy(), is_image, rows)

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
