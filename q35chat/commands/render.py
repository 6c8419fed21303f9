"""How a turn's events look on standard output and standard error.

Pure consumers of events: the answer goes to `out`, everything else to `err`. They know no model,
compute nothing and never wait.
"""

from __future__ import annotations

import json
from typing import Protocol

from q35chat.chat.events import (
    Event,
    Finished,
    Notice,
    PrefillProgress,
    PromptPlan,
    Token,
    VisionProgress,
)
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.report import summary
from q35chat.text import json_safe, pluralise, safe_text

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

_ENDINGS = {
    "length": "stopped after {said}; --max-new-tokens allows more",
    "capacity": "stopped at the capacity of {total} slots; export with a larger --max-seq-len",
    "cancelled": "stopped",
    "loop": "stopped after {said}: the text was repeating itself",
}


class Renderer(Protocol):
    """Shows the events of one turn, in order."""

    def show(self, event: Event) -> None:
        """Show one event. BrokenPipeError if nobody reads the output any more."""

    def close(self) -> None:
        """End lines that are still open; the turn is over, well or not."""


class StreamRenderer:
    """The answer as it comes; reasoning dim on stderr, progress on a line that goes away."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = StatusLine(console)
        self._reasoning = _OpenLine()
        self._answer = _OpenLine()

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Token(kind="reasoning", text=text) if text:
                self._show_reasoning(safe_text(text))
            case Token(kind="answer", text=text) if text:
                self._show_answer(safe_text(text))
            case Notice(text=text):
                self.close()
                self._console.note(text)
            case Finished() as finished:
                self.close()
                show_ending(finished, self._console)
            case _:
                self._status.show(progress_text(event))

    def close(self) -> None:
        """End the open lines."""
        self._status.clear()
        if self._reasoning.close():
            self._console.err.write("\n")
            self._console.err.flush()
        if self._answer.close():
            self._console.out.write("\n")
            self._console.out.flush()

    def _show_reasoning(self, text: str) -> None:
        self._status.clear()
        dim = self._console.err_has_colour
        self._console.err.write(f"{_DIM}{text}{_PLAIN}" if dim else text)
        self._console.err.flush()
        self._reasoning.wrote(text)

    def _show_answer(self, text: str) -> None:
        self._status.clear()
        if self._reasoning.close():
            self._console.err.write("\n")
            self._console.err.flush()
        self._console.out.write(text)
        self._console.out.flush()
        self._answer.wrote(text)


class JsonRenderer:
    """One JSON object on stdout when the turn is over; progress on stderr."""

    def __init__(self, console: Console, load_ms: float, session: str | None = None) -> None:
        self._console = console
        self._load_ms = load_ms
        self._session = session
        self._status = StatusLine(console)

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Finished() as finished:
                self._status.clear()
                value = summary(finished, self._load_ms, self._session)
                document = json.dumps(value, ensure_ascii=False)
                self._console.out.write(json_safe(document) + "\n")
                self._console.out.flush()
            case Notice(text=text):
                self._status.clear()
                self._console.note(text)
            case Token():
                pass
            case _:
                self._status.show(progress_text(event))

    def close(self) -> None:
        """Take the progress line away."""
        self._status.clear()


class _OpenLine:
    """Whether text was written that does not yet end its line."""

    def __init__(self) -> None:
        self._open = False

    def wrote(self, text: str) -> None:
        self._open = not text.endswith("\n")

    def close(self) -> bool:
        """Whether a newline must be written now."""
        was_open, self._open = self._open, False
        return was_open


def progress_text(event: Event) -> str:
    """A short line for what happens before the first token."""
    match event:
        case PromptPlan(prompt_tokens=total, image_tokens=pictures, capacity=capacity):
            of_them = f", {pictures} for pictures" if pictures else ""
            return f"prompt: {total:,} of {pluralise(capacity, 'slot')}{of_them}"
        case VisionProgress(done=done, total=total):
            return f"looking at pictures: {done} of {total}"
        case PrefillProgress(done=done, total=total, tokens_per_s=speed):
            of_all = f"{done:,} of {pluralise(total, 'token')}"
            return f"reading the prompt: {of_all} ({speed:.0f} tokens/s)"
        case _:
            return ""


def show_ending(finished: Finished, console: Console) -> None:
    """Say on stderr why the answer ended, unless the model ended it."""
    usage = finished.usage
    ending = _ENDINGS.get(finished.reason)
    if ending:
        said = pluralise(usage.completion_tokens - usage.reasoning_tokens, "answer token")
        console.note(ending.format(said=said, total=f"{usage.capacity_total:,}"))
