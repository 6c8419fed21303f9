"""What a server says: the parts of a streamed answer, its counts, and its errors, each checked.

Pure functions from JSON to values. What is missing is missing; what is of another kind than the
protocol has is an error in one line, and numbers keep within what they can be.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from q35chat.endpoint.network import Reply
from q35chat.errors import CapacityError, EndpointError, Q35Error, Remedy
from q35chat.json_reader import Fields, parse_json
from q35chat.text import safe_line

DONE: Final = "[DONE]"
_MOST: Final = 2**31 - 1
_SHOWN: Final = 300
_TOO_LONG: Final = {"context_length_exceeded", "exceed_context_size_error"}
_TOO_LONG_WORDS: Final = re.compile(r"maximum context length|available context size", re.IGNORECASE)
_ADVICE: Final = re.compile(r"\b(?:shorten|reduce|export|increase)\b", re.IGNORECASE)
"""Words of a refusal that says itself what to do about it."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens as a server tells them; None where it does not."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """Prompt tokens read, of those that had to be read, and the milliseconds it took so far."""

    done: int
    total: int
    ms: float


@dataclass(frozen=True, slots=True)
class Part:
    """One event of a streamed answer; `finish` is empty until it ends."""

    reasoning: str = ""
    text: str = ""
    finish: str = ""
    counts: TokenCounts | None = None
    progress: ReadingProgress | None = None


def part_of(data: str, host: str) -> Part:
    """One event's data. Raises EndpointError: it is none, or it tells of one."""
    fields = _fields(data, host)
    if fields.has("error"):
        raise _told(fields, host, "broke off")
    choices = fields.raw("choices")
    if choices is not None and not isinstance(choices, list):
        raise fields.wrong("choices", "a list", choices)
    counts = counts_of(fields)
    progress = _progress(fields)
    if not choices:
        return Part(counts=counts, progress=progress)
    choice = Fields(choices[0], fields.where, EndpointError)
    delta = choice.section_or_empty("delta")
    return Part(
        reasoning=_text(delta, "reasoning") or _text(delta, "reasoning_content"),
        text=_text(delta, "content"),
        finish=_text(choice, "finish_reason"),
        counts=counts,
        progress=progress,
    )


def counts_of(fields: Fields) -> TokenCounts | None:
    """The `usage` of an answer. Raises EndpointError for what are no counts."""
    if not fields.has("usage"):
        return None
    usage = fields.section("usage")
    read = usage.section_or_empty("prompt_tokens_details")
    made = usage.section_or_empty("completion_tokens_details")
    return TokenCounts(
        prompt=whole_or_none(usage, "prompt_tokens"),
        completion=whole_or_none(usage, "completion_tokens"),
        cached=whole_or_none(read, "cached_tokens"),
        reasoning=whole_or_none(made, "reasoning_tokens"),
    )


def error_of(reply: Reply, host: str, key_name: str) -> Q35Error:
    """Why a request was refused, in one line, whatever form the server says it in."""
    if 300 <= reply.status < 400:
        return EndpointError(
            f"{host} sends the request elsewhere; give the address it is really at"
        )
    if reply.status in {401, 403}:
        advice = f"check the key in {key_name}" if key_name else "it wants a key (api_key_env)"
        return EndpointError(f"{host} refuses (HTTP {reply.status}): {advice}")
    try:
        fields = Fields(parse_json(reply.body), host, EndpointError)
    except (ValueError, EndpointError):
        said = _line(reply.body.decode("utf-8", "replace"))
        return EndpointError(f"{host} refuses (HTTP {reply.status}): {said or 'no reason given'}")
    return _told(fields, host, f"refuses (HTTP {reply.status})")


def whole_or_none(fields: Fields, name: str) -> int | None:
    """A count; None where there is none. Raises EndpointError for what is none."""
    return fields.whole(name, most=_MOST) if fields.has(name) else None


def _fields(data: str, host: str) -> Fields:
    try:
        return Fields(parse_json(data), f"{host}: an event", EndpointError)
    except ValueError as error:
        raise EndpointError(f"{host}: an event is not JSON: {_line(str(error))}") from error


def _text(fields: Fields, name: str) -> str:
    """A text without what no file can hold: JSON lets half a character through."""
    return fields.text(name).encode("utf-8", "replace").decode() if fields.has(name) else ""


def _progress(fields: Fields) -> ReadingProgress | None:
    if not fields.has("prompt_progress"):
        return None
    told = fields.section("prompt_progress")
    total, cached, done = (
        told.whole(name, 0, most=_MOST) for name in ("total", "cache", "processed")
    )
    ms = told.real("time_ms", 0.0, least=0.0)
    return ReadingProgress(max(done - cached, 0), max(total - cached, 0), ms)


def _told(fields: Fields, host: str, what: str) -> Q35Error:
    """The error in `fields`: OpenAI's form, vLLM's older flat one, or FastAPI's."""
    told = fields.raw("error")
    error: dict[str, Any] = told if isinstance(told, dict) else {}
    said = error.get("message") or fields.raw("message") or fields.raw("detail") or told
    message = _line(said if isinstance(said, str) else json.dumps(said))
    kinds = {str(error.get("code")), str(error.get("type"))}
    if kinds & _TOO_LONG or _TOO_LONG_WORDS.search(message):
        return _too_long(error, message, host)
    return EndpointError(f"{host} {what}: {message}")


def _too_long(error: dict[str, Any], message: str, host: str) -> CapacityError:
    wanted, there = error.get("n_prompt_tokens"), error.get("n_ctx")
    if isinstance(wanted, int) and isinstance(there, int):
        what = f"prompt needs {wanted:,} slots, {host} has {there:,}"
    else:
        what = f"{host} has no room for it: {message.rstrip('.')}"
        if _ADVICE.search(message):
            return CapacityError(what)
    return CapacityError(f"{what}:", Remedy.SHORTEN_FOR_SERVER)


def _line(text: str) -> str:
    return safe_line(" ".join(text.split()), _SHOWN)
