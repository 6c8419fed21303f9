"""What the model wrote itself, found again when a client sends it back as text.

Its own token ids, so that a follow-up is matched by them and not read again; also the text of calls
of tools, which clients send back in another form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from q35chat.chat.events import Finished
from q35chat.chat.prompt.cache import SizedCache

_REMEMBERED: Final = 8 << 20
"""Characters and tokens of answers."""


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """The `text` of an answer as it was written, calls included, and its ids."""

    text: str
    token_ids: tuple[int, ...]


class OwnAnswers:
    """Answers by what a client was given of them: the text and the ids of the calls."""

    def __init__(self) -> None:
        self._known = SizedCache[tuple[str, tuple[str, ...]], OwnAnswer](
            lambda key, answer: len(key[0]) + len(answer.text) + 8 * len(answer.token_ids),
            _REMEMBERED,
        )

    def remember(self, text: str, calls: tuple[str, ...], finished: Finished) -> None:
        """Keep an answer of which a client was given `text` and `calls`."""
        if finished.text:
            answer = OwnAnswer(finished.text, finished.token_ids)
            self._known.put((text.strip(), calls), answer)

    def find(self, text: str, calls: tuple[str, ...]) -> OwnAnswer | None:
        """The answer that a client sends back so; None where it is not known."""
        return self._known.get((text.strip(), calls))
