"""How a turn is shown: the answer on standard output, everything else on standard error.

`show_turn` runs it in a worker and stops it on Ctrl+C; renderers consume its events, compute
nothing and never wait; the numbers of `--json` and `--stats` are pure functions of `Finished`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from q35chat.chat.events import (
    Event,
    Finished,
    Notice,
    PrefillProgress,
    PromptPlan,
    Timings,
    Token,
    VisionProgress,
)
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.streaming import in_worker, stop_on_interrupt, stop_on_termination
from q35chat.text import json_safe, percentile, pluralise, safe_text

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

_ENDINGS = {
    "length": "stopped after {said}; --max-new-tokens allows more",
    "capacity": "stopped at the capacity of {total} slots; export with a larger --max-seq-len, "
    "or start the server with more context",
    "cancelled": "stopped",
    "loop": "stopped after {said}: the text was repeating itself",
}


class StreamRenderer:
    """The answer as it comes; reasoning dim on stderr, progress on a line that goes away, or
    `in_lines` of its own."""

    def __init__(self, console: Console, *, in_lines: bool = False) -> None:
        self._console = console
        self._status = StatusLine(console, in_lines=in_lines)
        self._open_lines: set[TextIO] = set()

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Token(kind="reasoning", text=text) if text:
                dim = self._console.err_has_colour
                self._write(self._console.err, safe_text(text), dim=dim)
            case Token(kind="answer", text=text) if text:
                self._end_line(self._console.err)
                self._write(self._console.out, safe_text(text))
            case Token():
                pass
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
        self._end_line(self._console.err)
        self._end_line(self._console.out)

    def _write(self, stream: TextIO, text: str, *, dim: bool = False) -> None:
        self._status.clear()
        stream.write(f"{_DIM}{text}{_PLAIN}" if dim else text)
        stream.flush()
        self._open_lines.discard(stream)
        if not text.endswith("\n"):
            self._open_lines.add(stream)

    def _end_line(self, stream: TextIO) -> None:
        if stream in self._open_lines:
            self._write(stream, "\n")


class JsonRenderer:
    """One JSON object on stdout when the turn is over; progress on stderr."""

    def __init__(
        self, console: Console, load_ms: float, session: Callable[[], str | None] = lambda: None
    ) -> None:
        self._console = console
        self._load_ms = load_ms
        self._session = session
        self._status = StatusLine(console)

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Finished() as finished:
                self._status.clear()
                value = summary(finished, self._load_ms, self._session())
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


Renderer = StreamRenderer | JsonRenderer


def show_turn(events: Iterator[Event], stop: Callable[[], None], renderer: Renderer) -> Finished:
    """Compute and show a turn; how it ended.

    Ctrl+C calls `stop`, which ends it after the current step, with what there is by then; SIGTERM
    does, too, and leaves the program after that. If nobody reads the output any more it is stopped,
    and BrokenPipeError raised.
    """
    finished: Finished | None = None
    try:
        with stop_on_termination(stop), stop_on_interrupt(stop):
            for event in in_worker(events):
                renderer.show(event)
                if isinstance(event, Finished):
                    finished = event
    except BrokenPipeError:
        raise
    except BaseException:
        renderer.close()
        raise
    finally:
        stop()
    if finished is None:
        raise RuntimeError("the turn ended without telling how")
    return finished


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


def summary(finished: Finished, load_ms: float, session: str | None = None) -> dict[str, Any]:
    """The object of `--json`. Milliseconds; counts are tokens, which are slots.

    `session` names the conversation that keeps the turn, None where nothing is kept.
    """
    usage = finished.usage
    return {
        "text": finished.text,
        "reasoning": finished.reasoning,
        "token_ids": list(finished.token_ids),
        "prompt_tokens": usage.prompt_tokens,
        "reused_tokens": usage.reused_tokens,
        "completion_tokens": usage.completion_tokens,
        "image_tokens": usage.image_tokens,
        "drafted_tokens": usage.drafted_tokens,
        "accepted_tokens": usage.accepted_tokens,
        "finish_reason": finished.reason,
        "capacity": {
            "total": usage.capacity_total,
            "used": usage.capacity_used,
            "free": usage.capacity_free,
        },
        "timings": _timings(usage.timings, load_ms),
        "session": session,
    }


def _timings(timings: Timings, load_ms: float) -> dict[str, Any]:
    return {
        "load_ms": _ms(load_ms),
        "vision_ms": _ms(timings.vision_ms),
        "prefill_ms": _ms(timings.prefill_ms),
        "first_token_ms": _ms(timings.first_token_ms),
        "decode_ms_per_token": {
            f"p{percent}": _ms(percentile(timings.wall_ms, percent)) if timings.wall_ms else None
            for percent in (50, 95)
        },
        "predict_ms": _ms(sum(timings.predict_ms)),
        "wall_ms": _ms(sum(timings.wall_ms)),
    }


def _ms(value: float) -> float:
    return round(value, 3)


def stats_lines(finished: Finished, load_ms: float, session: str | None = None) -> list[str]:
    """The lines of `--stats`; `session` names the conversation that keeps the turn."""
    usage = finished.usage
    times = usage.timings
    read = usage.prompt_tokens - usage.reused_tokens
    steps, wall_s = len(times.wall_ms), sum(times.wall_ms) / 1000
    inside = sum(times.predict_ms)
    lines = [
        f"load      {load_ms:.0f} ms",
        f"prompt    {pluralise(usage.prompt_tokens, 'token')}, "
        f"{usage.image_tokens:,} for pictures, {usage.reused_tokens:,} reused; "
        f"vision {times.vision_ms:.0f} ms, prefill {times.prefill_ms:.0f} ms"
        + _speed(read, times.prefill_ms / 1000),
    ]
    if times.route:
        lines.append(f"route     {times.route}")
    thought = f"{usage.reasoning_tokens:,} of them reasoning"
    first = f"first token after {times.first_token_ms:.0f} ms"
    lines.append(f"answer    {pluralise(usage.completion_tokens, 'token')}, {thought}; {first}")
    if steps:
        lines.append(
            f"decode    {percentile(times.wall_ms, 50):.1f} ms a token (p50), "
            f"{percentile(times.wall_ms, 95):.1f} ms (p95)"
            + _speed(steps, wall_s)
            + (f"; {inside / steps:.1f} ms mean in the runtime" if inside else "")
        )
    if usage.drafted_tokens:
        guessed = pluralise(usage.drafted_tokens, "guessed token")
        lines.append(f"ahead     {usage.accepted_tokens:,} of {guessed} came true")
    total = pluralise(usage.capacity_total, "slot")
    lines.append(f"capacity  {usage.capacity_used:,} of {total} used")
    return lines if session is None else [*lines, f"session   {session}"]


def _speed(tokens: int, seconds: float) -> str:
    return f", {tokens / seconds:.1f} tokens/s" if seconds > 0 and tokens else ""
