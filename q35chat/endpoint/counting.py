"""How many slots a prompt takes on a server: counted there where it counts, else estimated.

An estimate learns from what the server tells of each prompt. It never says that a prompt does not
fit: that is for the server to say.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from q35chat.chat.prompt.cache import SizedCache
from q35chat.chat.values import ChatSettings
from q35chat.endpoint.choice import EndpointChoice
from q35chat.endpoint.network import Network
from q35chat.endpoint.request import Message, template_fields, without_pictures
from q35chat.endpoint.server import Server, count

COUNT_S: Final = 1.0
"""What is counted cannot be stopped, and nobody waits longer for what was."""
PAUSE_S: Final = 30.0
"""How long nothing is counted by a server that failed to."""
_KEPT: Final = 128
_PER_BYTE: Final = 0.28
"""Tokens a byte of UTF-8: between English, about 0.23, and code, about 0.33."""
_PER_MESSAGE: Final = 5
_FRAME: Final = 2
"""Tokens around each picture."""


class SlotCounter:
    """Counts prompts of one model on one server; from any thread."""

    def __init__(
        self,
        network: Network,
        choice: EndpointChoice,
        server: Server,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._choice = choice
        self._server = server
        self._clock = clock
        self._known = SizedCache[bytes, int](lambda *_: 1, _KEPT)
        self._per_byte = _PER_BYTE
        self._not_before = float("-inf")

    @property
    def estimates(self) -> bool:
        """Whether the server does not count, or failed to just now."""
        return not self._server.counting or self._clock() < self._not_before

    def tokens(self, messages: Sequence[Message], settings: ChatSettings, pictures: int) -> int:
        """The slots of a prompt whose pictures take `pictures`; never over the capacity where they
        are estimated."""
        texts = without_pictures(messages)
        frames = _FRAME * sum(
            len(message["content"]) - 1
            for message in messages
            if not isinstance(message["content"], str)
        )
        counted = self._counted({"model": self._server.model, **template_fields(texts, settings)})
        if counted is not None:
            return counted + pictures + frames
        estimated = round(_size(texts) * self._per_byte) + _PER_MESSAGE * (len(texts) + 1)
        return min(estimated + pictures + frames, self._server.capacity - 1)

    def learn(self, messages: Sequence[Message], pictures: int, tokens: int) -> None:
        """A prompt of these messages took so many `tokens`, as the server says."""
        texts = without_pictures(messages)
        size = _size(texts)
        if size:
            text_tokens = tokens - pictures - _PER_MESSAGE * (len(texts) + 1)
            self._per_byte = min(max(text_tokens / size, 0.05), 2.0)

    def _counted(self, prompt: dict[str, Any]) -> int | None:
        if self.estimates:
            return None
        key = hashlib.sha256(json.dumps(prompt).encode()).digest()
        known = self._known.get(key)
        if known is not None:
            return known
        found = count(self._network, self._choice, self._server.counting, prompt, COUNT_S)
        if found is None:
            self._not_before = self._clock() + PAUSE_S
        else:
            self._known.put(key, found)
        return found


def _size(messages: Sequence[Message]) -> int:
    """Bytes of what the messages say; reasoning of earlier answers, which templates drop, is not
    counted."""
    return sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
