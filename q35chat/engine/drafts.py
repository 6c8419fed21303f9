"""The two drafters: from the sequence itself, and from the checkpoint's own head.

Know token ids and, of a decoder, only where it stands and its head.
"""

from __future__ import annotations

from collections.abc import Iterable

from q35chat.engine.decoder import Decoder
from q35chat.engine.draft_head import DraftHead

_LENGTHS = (4, 2)


class PromptLookup:
    """Prompt lookup: a sequence, and where in it its own end was seen before.

    Quotes, names, code and lists come again word for word.

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


class HeadDrafter:
    """What the head of a decoder expects to follow the token that is read next.

    Each token of a draft costs a run of the head, so nothing is guessed before it is asked for.
    """

    def __init__(self, decoder: Decoder, head: DraftHead) -> None:
        self._decoder = decoder
        self._head = head
        self._token: int | None = None
        self._expected: list[int] = []
        self.strength = 1

    @property
    def next(self) -> int | None:
        """What the last draft says comes now, None where it is at its end or was wrong."""
        return self._expected[0] if self._expected else None

    @property
    def ready(self) -> bool:
        """Whether there can be a draft."""
        return self._token is not None

    @property
    def milliseconds(self) -> float:
        """What the last draft took inside the runtime."""
        return self._head.milliseconds

    def push(self, token: int) -> None:
        """The sequence goes on with `token`.

        `strength` is then the place in its draft of the token expected next, from 1: the further
        ahead, the less sure.
        """
        if self._expected and self._expected.pop(0) == token:
            self.strength += 1
        else:
            self._expected.clear()
        if not self._expected:
            self.strength = 1
        self._token = token

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow the last one pushed."""
        assert self._token is not None
        self._expected = self._head.draft(self._token, most, self._decoder.rope_position)
        self.strength = 1
        return list(self._expected)
