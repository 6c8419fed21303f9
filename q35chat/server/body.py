"""The body of a request as JSON: bounded, not deep, real text, each field of the kind it should be.

What is null counts as not there, as clients mean it.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from q35chat.json_reader import Fields, parse_json
from q35chat.server.problems import RefusedError

MOST_NAMED: Final = 64
"""Characters of a name, such as that of a tool."""


async def read_body(request: Request, most: int) -> Fields:
    """The object that a request of at most `most` bytes holds. Raises RefusedError."""
    parts, length = [], 0
    try:
        async for part in request.stream():
            length += len(part)
            if length > most:
                raise RefusedError(f"the body has more than {most:,} bytes: send less", 413)
            parts.append(part)
    except ClientDisconnect as error:
        raise RefusedError("the client went away", 499) from error
    try:
        value = parse_json(b"".join(parts).decode())
    except UnicodeDecodeError as error:
        raise RefusedError(f"the body is not UTF-8 at byte {error.start:,}") from error
    except ValueError as error:
        raise RefusedError(f"the body is not JSON that can be used: {error}") from error
    return object_of(value, "the body")


def object_of(value: object, where: str) -> Fields:
    """The fields of an object that are not null. Raises RefusedError."""
    if isinstance(value, dict):
        value = {name: part for name, part in value.items() if part is not None}
    return Fields(value, where, RefusedError)


def objects(fields: Fields, name: str) -> list[Fields]:
    """A list of objects; none where the field is not there. Raises RefusedError."""
    value = fields.raw(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise fields.wrong(name, "a list of objects", value)
    return [object_of(one, f"{name}[{place}]") for place, one in enumerate(value)]


def section(fields: Fields, name: str) -> Fields:
    """The object in a field, without what is null; one without fields where there is none."""
    value = fields.raw(name)
    return object_of({} if value is None else value, name)


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A text that is made of characters. Raises RefusedError."""
    if default is not None and not fields.has(name):
        return default
    return characters(fields.text(name), f"{fields.where}: field {name!r}")


def characters(value: str, where: str) -> str:
    """`value`, once it holds no half of a pair of UTF-16. Raises RefusedError."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise RefusedError(f"{where} holds U+{code:04X}, which is no character") from error
    return value


def whole_or_none(fields: Fields, name: str, *, least: int = 0) -> int | None:
    """A whole number, None where there is none. Raises RefusedError."""
    return fields.whole(name, least=least) if fields.has(name) else None


def sound(value: Any, where: str) -> Any:  # noqa: ANN401  (JSON)
    """`value`, once all texts in it are made of characters. Raises RefusedError."""
    if isinstance(value, dict):
        for name, part in value.items():
            characters(name, where)
            sound(part, where)
    elif isinstance(value, list):
        for part in value:
            sound(part, where)
    elif isinstance(value, str):
        characters(value, where)
    return value
