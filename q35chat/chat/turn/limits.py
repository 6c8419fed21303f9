"""How long a turn may think and answer, and when it goes round in circles.

Reasoning and answer have limits of their own: a thought that is too long is closed, so that an
answer still comes; only then the answer itself is ended. A loop is the same tokens again and again,
to the letter.
"""

from __future__ import annotations

from collections.abc import Iterable

from q35chat.chat.events import FinishReason, TokenKind
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.values import ChatSettings
from q35chat.text import pluralise


class TurnLimits:
    """The counts of one turn; `max_tokens` limits reasoning and answer together. `reached` says why
    the turn must end, None while it need not."""

    def __init__(
        self, settings: ChatSettings, tokenizer: ChatTokenizer, max_tokens: int | None = None
    ) -> None:
        self._settings = settings
        self._tags = tokenizer.tags
        self._tokenizer = tokenizer
        self._guard = LoopGuard()
        self._closing = False
        self._max_tokens = max_tokens
        self._answer_tokens = 0
        self.reasoning_tokens = 0
        self.reached: FinishReason | None = None

    def resume(self, ids: Iterable[int]) -> None:
        """Take in what was said before: it may be the first rounds of a loop, but counts for no
        limit."""
        self._guard.push_all(ids)

    def take(self, token: int, kind: TokenKind) -> str:
        """Count `token`. A text says that `closing_ids` must come next, and why."""
        looped = self._guard.push(token) and self._settings.loop_guard
        if kind == "answer":
            self._answered(looped=looped)
        else:
            self.reasoning_tokens += 1
        if self._max_tokens is not None and self._tokens >= self._max_tokens:
            self.reached = "length"
        if kind == "answer" or self.reached:
            return ""
        return "" if token == self._tags.close or self._closing else self._thought(looped=looped)

    @property
    def _tokens(self) -> int:
        return self._answer_tokens + self.reasoning_tokens

    def closing_ids(self) -> list[int]:
        """What ends a thought, once; nothing if none is to be ended."""
        if not self._closing or self._tags.close is None:
            return []
        encode = self._tokenizer.encode_literally
        return [*encode("\n"), self._tags.close, *encode("\n\n")]

    def _thought(self, *, looped: bool) -> str:
        budget = self._settings.thinking_budget
        over = budget is not None and self.reasoning_tokens >= budget
        if not looped and not over:
            return ""
        self._closing = True
        self._guard.reset()
        why = "it repeated itself" if looped else "its budget is used"
        return f"thinking stopped after {pluralise(self.reasoning_tokens, 'token')}: {why}"

    def _answered(self, *, looped: bool) -> None:
        self._answer_tokens += 1
        limit = self._settings.max_new_tokens
        if limit is not None and self._answer_tokens >= limit:
            self.reached = "length"
        elif looped:
            self.reached = "loop"


NGRAM = 8
ROUNDS = 6
LEAST_TOKENS = 128


class LoopGuard:
    """Feed it every sampled token of a passage; it says when the passage only repeats itself.

    A loop is `ROUNDS` equal rounds in a row, of any length, that are `LEAST_TOKENS` tokens or
    more together. One dictionary entry and one comparison a token, however long a round is.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a new passage."""
        self._recent: tuple[int, ...] = ()
        self._last_seen: dict[tuple[int, ...], int] = {}
        self._count = 0
        self._period = 0
        self._repeated = 0

    def push(self, token: int) -> bool:
        """Add a token; True while the end of the passage is a loop."""
        self._count += 1
        self._recent = (*self._recent[-NGRAM + 1 :], token)
        period = self._count - self._last_seen.get(self._recent, self._count)
        self._last_seen[self._recent] = self._count
        if period == 0 or len(self._recent) < NGRAM:
            self._period = self._repeated = 0
        elif period == self._period:
            self._repeated += 1
        else:
            self._period, self._repeated = period, NGRAM
        return self.looping

    def push_all(self, tokens: Iterable[int]) -> bool:
        """Add what was said before, when an answer goes on."""
        for token in tokens:
            self.push(token)
        return self.looping

    @property
    def looping(self) -> bool:
        """Whether the end of the passage is a loop."""
        needed = max(self._period * (ROUNDS - 1), LEAST_TOKENS - self._period)
        return self._period > 0 and self._repeated >= needed
