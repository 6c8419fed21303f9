"""The numbers of a finished turn: the object of `--json` and the lines of `--stats`.

Pure functions of `Finished`; they know neither model nor stream.
"""

from __future__ import annotations

from typing import Any

from q35chat.chat.events import Finished, Timings
from q35chat.text import percentile, pluralise


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
            + f"; {sum(times.predict_ms) / steps:.1f} ms mean in the runtime"
        )
    if usage.drafted_tokens:
        guessed = pluralise(usage.drafted_tokens, "guessed token")
        lines.append(f"ahead     {usage.accepted_tokens:,} of {guessed} came true")
    total = pluralise(usage.capacity_total, "slot")
    lines.append(f"capacity  {usage.capacity_used:,} of {total} used")
    return lines if session is None else [*lines, f"session   {session}"]


def _speed(tokens: int, seconds: float) -> str:
    return f", {tokens / seconds:.1f} tokens/s" if seconds > 0 and tokens else ""
