"""Calls of tools in what the model writes, as it writes them: names, and arguments as JSON.

Two forms are known: a JSON object, and Qwen's tags for each parameter, both between `<tool_call>`
and `</tool_call>`. Arguments come piece by piece. What only looks like a call is text. Knows no
protocol and no event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
_MOST_HEAD: Final = 512
"""Characters in which the name of a tool must have come."""
_JSON_HEAD: Final = re.compile(
    r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_JSON_TAIL: Final = re.compile(r"\s*\}\s*")
_TAG_HEAD: Final = re.compile(r"\s*<function=([^<>\s]+)>\s*")
_TAG_PARAMETER: Final = re.compile(r"\s*<parameter=([^<>\s]+)>\n?")
_TAG_TAIL: Final = re.compile(r"\s*</function>\s*")
_END_OF_VALUE: Final = "</parameter>"
_STRING_OR_BRACE: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]', re.DOTALL)

Schemas = Mapping[str, Mapping[str, Any]]
"""The JSON schema of the arguments of each tool, by its name."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """More of the arguments of the call number `index`; `name` where it begins. `broken` is the
    text of a call that went wrong after it had begun: it is none."""

    index: int
    name: str = ""
    arguments: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call as far as it was read: `arguments` only grow. `end` is where a whole one ends."""

    state: Literal["open", "whole", "broken"]
    name: str = ""
    arguments: str = ""
    end: int = 0


def read_call(body: str, schemas: Schemas) -> PartialCall:
    """The call that `body`, the text after its opening tag, begins with."""
    start = body.lstrip()
    if not start:
        return PartialCall("open")
    if start.startswith("{"):
        return _read_json(body, schemas)
    if start.startswith(_TAG_START[: len(start)]):
        return _read_tags(body, schemas)
    return PartialCall("broken")


_TAG_START: Final = "<function="


class CallStream:
    """Texts and calls in one answer, of tools with these `schemas`. `forced`: the whole answer is
    one call as a JSON object, without tags."""

    def __init__(self, schemas: Schemas, *, forced: bool = False) -> None:
        self._schemas = schemas
        self._forced = forced
        self._inside = forced
        self._held = self._gap = ""
        self._count = 0
        self._sent: PartialCall | None = None

    def push(self, text: str) -> Iterator[str | CallPiece]:
        """What `text` completes: text, or pieces of calls."""
        self._held += text
        while True:
            if not self._inside:
                before, opened, after = self._held.partition(OPEN)
                if not opened:
                    yield from self._release(len(self._held) - self._maybe())
                    return
                self._held, self._inside = after, True
                said = before.rstrip()
                self._gap = before[len(said) :]
                if said:
                    yield said
            yield from self._read(final=False)
            if self._inside:
                return

    def flush(self) -> Iterator[str | CallPiece]:
        """What is left at the end of the answer."""
        if self._inside:
            yield from self._read(final=True)
        if self._held.strip() or not self._count:
            yield from self._release(len(self._held))

    def _read(self, *, final: bool) -> Iterator[str | CallPiece]:
        call = read_call(self._held, self._schemas)
        if call.state == "whole" and not self._forced:
            rest = self._held[call.end :]
            if not (final and not rest) and not rest.startswith(CLOSE):
                may_come = CLOSE.startswith(rest) and not final
                call = PartialCall("open" if may_come else "broken", call.name, call.arguments)
        if final and call.state == "open":
            call = PartialCall("broken", call.name, call.arguments)
        if call.state == "broken":
            yield from self._give_up()
            return
        sent = self._sent or PartialCall("open")
        if call.name:
            begun = self._sent is None
            piece = call.arguments[len(sent.arguments) :]
            self._sent = call
            if begun or piece:
                yield CallPiece(self._count, call.name if begun else "", piece)
        if call.state == "whole":
            self._held = self._held[call.end :].removeprefix(CLOSE)
            self._inside, self._sent = False, None
            self._count += 1

    def _give_up(self) -> Iterator[str | CallPiece]:
        """What was taken for a call is text."""
        opening = "" if self._forced else self._gap + OPEN
        self._inside = False
        if self._sent is None:
            if opening:
                yield opening
            return
        yield CallPiece(self._count, broken=opening + self._held)
        self._count += 1
        self._sent, self._held = None, ""

    def _release(self, length: int) -> Iterator[str]:
        text, self._held = self._held[:length], self._held[length:]
        if text:
            yield text

    def _maybe(self) -> int:
        """The length of the end of the held text that may begin a call, white space before it
        included."""
        for length in range(min(len(OPEN) - 1, len(self._held)), -1, -1):
            if self._held.endswith(OPEN[:length]):
                kept = self._held[: len(self._held) - length].rstrip()
                return len(self._held) - len(kept)
        return 0


def _read_json(body: str, schemas: Schemas) -> PartialCall:
    head = _JSON_HEAD.match(body)
    if head is None:
        return PartialCall("open" if len(body) < _MOST_HEAD else "broken")
    name = _unescaped(head[1])
    if name not in schemas:
        return PartialCall("broken")
    end = _end_of_object(body, head.end())
    if end is None:
        return PartialCall("open", name, body[head.end() :])
    arguments = body[head.end() : end]
    if not _is_object(arguments):
        return PartialCall("broken", name, arguments)
    tail = _JSON_TAIL.match(body, end)
    if tail is not None:
        return PartialCall("whole", name, arguments, tail.end())
    return PartialCall("broken" if body[end:].strip() else "open", name, arguments)


def _read_tags(body: str, schemas: Schemas) -> PartialCall:
    head = _TAG_HEAD.match(body)
    if head is None:
        return PartialCall("open" if len(body) < _MOST_HEAD and ">" not in body else "broken")
    name = head[1]
    if name not in schemas:
        return PartialCall("broken")
    place, arguments, known = head.end(), "{", set[str]()
    while parameter := _TAG_PARAMETER.match(body, place):
        key = parameter[1]
        if key in known:
            return PartialCall("broken", name, arguments)
        arguments += (", " if known else "") + json.dumps(key, ensure_ascii=False) + ": "
        known.add(key)
        is_text = _is_text(schemas[name], key)
        end = body.find(_END_OF_VALUE, parameter.end())
        if end < 0:
            open_text = _safe_start(body[parameter.end() :]) if is_text else ""
            begun = json.dumps(open_text, ensure_ascii=False)[:-1] if is_text else ""
            return PartialCall("open", name, arguments + begun)
        arguments += _value(body[parameter.end() : end].removesuffix("\n"), is_text=is_text)
        place = end + len(_END_OF_VALUE)
    if tail := _TAG_TAIL.match(body, place):
        return PartialCall("whole", name, arguments + "}", tail.end())
    rest = body[place:].lstrip()
    tags = ("<parameter=", "</function>")
    possible = not rest or any(rest.startswith(tag[: len(rest)]) for tag in tags)
    possible = possible or (rest.startswith(tags[0]) and ">" not in rest)
    return PartialCall("open" if possible else "broken", name, arguments)


def _safe_start(value: str) -> str:
    """The beginning of a value that its end cannot change."""
    for length in range(min(len(_END_OF_VALUE), len(value)), 0, -1):
        if value.endswith(_END_OF_VALUE[:length]):
            value = value[:-length]
            break
    return value.removesuffix("\n")


def _value(text: str, *, is_text: bool) -> str:
    """A parameter as JSON: a text where the schema says so, else whatever JSON it is."""
    if not is_text:
        try:
            return json.dumps(json.loads(text), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return json.dumps(text, ensure_ascii=False)


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    properties = schema.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return isinstance(found, Mapping) and found.get("type") == "string"


def _end_of_object(text: str, start: int) -> int | None:
    """Where the object that begins at `start` ends; None where it does not yet."""
    depth = 0
    for match in _STRING_OR_BRACE.finditer(text, start):
        mark = match[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
