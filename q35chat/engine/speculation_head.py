"""Drafts from the checkpoint's own head, over a decoder that has one.

Each token of a draft costs a run of the head, so nothing is guessed before it is asked for.
"""

from __future__ import annotations

from q35chat.engine.decoder import Decoder
from q35chat.engine.draft_head import DraftHead


class HeadDrafter:
    """What the head of a decoder expects to follow the token that is read next."""

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
