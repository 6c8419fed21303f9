"""Drafts from the sequence itself: what followed the last time these tokens came.

Prompt lookup: quotes, names, code and lists come again word for word. Knows token ids only.
"""

from __future__ import annotations

from collections.abc import Iterable

_LENGTHS = (4, 2)


class PromptLookup:
    """A sequence and where in it its own end was seen before.

    Each token costs a few dictionary entries, however long the sequence is.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        self._followers: dict[tuple[int, ...], int] = {}
        self._source: int | None = None
        self.strength = 0
        for token in ids:
            self.push(token)

    @property
    def next(self) -> int | None:
        """The token that a draft would begin with, None where there is none."""
        return None if self._source is None else self._ids[self._source]

    @property
    def ready(self) -> bool:
        """Whether there is a draft."""
        return self._source is not None

    @property
    def milliseconds(self) -> float:
        """Nothing is run."""
        return 0.0

    def push(self, token: int) -> None:
        """The sequence goes on with `token`.

        `strength` is then how many of its last tokens agree with the place that drafts are copied
        from, 0 where there is none.
        """
        if self._source is not None and self._ids[self._source] == token:
            self._source += 1
            self.strength += 1
        else:
            self._source, self.strength = None, 0
        self._ids.append(token)
        end = len(self._ids)
        for length in _LENGTHS:
            if end < length:
                continue
            gram = tuple(self._ids[-length:])
            seen = self._followers.get(gram)
            if self._source is None and seen is not None:
                self._source, self.strength = seen, length
            self._followers[gram] = end

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow; a copy that reaches the end goes on in itself."""
        if self._source is None:
            return []
        period = len(self._ids) - self._source
        copied = self._ids[self._source : self._source + most]
        return [copied[place % period] for place in range(most)]
