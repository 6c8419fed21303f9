"""The text of one answer as its tokens come: reasoning, answer, stop strings, trimmed edges.

What is reasoning is told by the ids of the think tags; what might be the start of a stop string is
held back. Knows tokens and text; knows no model and no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from q35chat.chat.events import TokenKind
from q35chat.chat.prompt.tokenizer import ChatTokenizer, Detokenizer


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """Text that one token released, perhaps none, and where it belongs."""

    kind: TokenKind
    text: str


class _Trimmed:
    """Drops line ends before the first text, and those after the last if `both`."""

    def __init__(self, *, both: bool) -> None:
        self._both = both
        self._started = False
        self._held = ""

    def push(self, text: str) -> str:
        if not self._started:
            text = text.lstrip("\n")
            self._started = bool(text)
        if not self._both:
            return text
        text = self._held + text
        kept = text.rstrip("\n")
        self._held = text[len(kept) :]
        return kept


class AnswerText:
    """Both texts of an answer. Stop strings count in the answer only, never in the reasoning."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        opened: bool,
        stops: Sequence[str] = (),
        plain: bool = False,
    ) -> None:
        """`opened` inside a thought; in `plain` text no thought opens."""
        self._tokenizer = tokenizer
        self._tags = tokenizer.tags
        self._kind: TokenKind = "reasoning" if opened else "answer"
        self._may_open = not opened and not plain
        self._stop_texts = tuple(stops)
        self._clear()
        self._begin(trim=opened)

    @property
    def stopped(self) -> bool:
        """Whether a stop string came."""
        return self._stops.stopped

    @property
    def kind(self) -> TokenKind:
        """What the next token belongs to."""
        return self._kind

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._parts["reasoning"])

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._parts["answer"])

    def resume(self, ids: Iterable[int]) -> None:
        """Take in tokens whose text is already out; what follows fits on to it."""
        for token in ids:
            self.push(token)
        self._clear()

    def push(self, token: int) -> AnswerPart:
        """The text that `token` releases.

        A thought opens only at the very start and closes once: later tags are plain text.
        """
        kind = self._kind
        opens = self._may_open and token == self._tags.open
        closes = kind == "reasoning" and token == self._tags.close
        self._may_open = False
        if not opens and not closes:
            return self._part(kind, self._clean(kind, self._stream.push(token)))
        rest = self._clean(kind, self._stream.flush())
        self._kind = "reasoning" if opens else "answer"
        self._begin(trim=True)
        return self._part("reasoning", rest if closes else "")

    def flush(self) -> AnswerPart:
        """The text held back as a possible stop string. A character cut in half is dropped: it
        comes whole if the answer is gone on with."""
        return self._part(self._kind, self._stops.flush() if self._kind == "answer" else "")

    def _clear(self) -> None:
        self._stops = StopMatcher(self._stop_texts)
        self._parts: dict[TokenKind, list[str]] = {"reasoning": [], "answer": []}

    def _begin(self, *, trim: bool) -> None:
        """Start a stream of text; `trim` when a think tag is before it."""
        self._stream = Detokenizer(self._tokenizer)
        self._trim = _Trimmed(both=self._kind == "reasoning") if trim else None

    def _clean(self, kind: TokenKind, text: str) -> str:
        if self._trim is not None:
            text = self._trim.push(text)
        return self._stops.push(text) if kind == "answer" else text

    def _part(self, kind: TokenKind, text: str) -> AnswerPart:
        if text:
            self._parts[kind].append(text)
        return AnswerPart(kind, text)


class StopMatcher:
    """Cuts a stream at the first stop string; `stopped` tells that it came."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of the stream so far that can no longer belong to a stop string."""
        if self.stopped:
            return ""
        self._held += text
        found = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._held) - self._longest_start())

    def flush(self) -> str:
        """What is still held when the stream ends; nothing after a stop."""
        held, self._held = self._held, ""
        return "" if self.stopped else held

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _longest_start(self) -> int:
        """Length of the longest end of the held text that starts a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
