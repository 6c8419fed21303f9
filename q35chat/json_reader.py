"""JSON that others wrote, read without surprises: no pipe is waited for, nothing is taken that is
far larger or deeper than what this program needs, and each value is of the kind and in the range
that its reader needs, or one line says which field it is and what is wanted.

A leaf. Knows no file's fields.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from q35chat.errors import Q35Error

MOST_BYTES: Final = 32 << 20
MOST_LEVELS: Final = 64
_TOO_DEEP: Final = f"it is nested more than {MOST_LEVELS} deep"


def read_json(path: Path) -> Any:  # noqa: ANN401  (whatever the file holds)
    """What the JSON file at `path` holds. Raises ValueError, whose text is the reason."""
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401
    """What `text` holds. Raises ValueError for what is not JSON or too deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file that has at most so many. Raises ValueError, whose text is the reason."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ValueError("it is a folder, a pipe or a device, not a file")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def _is_deep(value: object) -> bool:
    level = _containers([value])
    for _ in range(MOST_LEVELS):
        level = [
            child
            for parent in level
            for child in _containers(parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _containers(values: Iterable[Any]) -> list[dict[str, Any] | list[Any]]:
    return [value for value in values if isinstance(value, dict | list)]


MOST: Final = 2**63 - 1
MOST_COUNT: Final = 2**31 - 1
_MOST_REAL: Final = 1e30
_SHOWN: Final = 60


class Fields:
    """One JSON object. `where` leads to it in messages, `error` makes what is raised of them.

    A field that is not there is its default's; without a default it must be there.
    """

    def __init__(self, data: object, where: str, error: Callable[[str], Q35Error]) -> None:
        self.where = where
        self._error = error
        if not isinstance(data, dict):
            raise error(f"{where} must be an object, found {_shown(data)}")
        self._data: dict[str, Any] = data

    def names(self) -> list[str]:
        """The fields that are there."""
        return list(self._data)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._data.get(name) is not None

    def raw(self, name: str) -> object:
        """The field as it is; None where there is none."""
        return self._data.get(name)

    def text(self, name: str) -> str:
        """A text."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text", value)
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text or null."""
        return None if self._get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts", value)
        return tuple(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false; null is the default."""
        value = self._data.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return default if value is None else value

    def whole(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = MOST
    ) -> int:
        """A whole number from `least` to `most`."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least:,} to {most:,}", value)
        return value

    def count(self, name: str) -> int:
        """How many of something a model has: at least one, and no more than a graph can name."""
        return self.whole(name, least=1, most=MOST_COUNT)

    def wholes(self, name: str, default: tuple[int, ...], *, most: int = MOST) -> tuple[int, ...]:
        """As many whole numbers from 0 to `most` as the default has."""
        return tuple(
            item.whole(name, most=most) for item in self._items(name, default, len(default))
        )

    def real(
        self,
        name: str,
        default: float | None = None,
        *,
        least: float = -_MOST_REAL,
        most: float = _MOST_REAL,
    ) -> float:
        """A finite number from `least` to `most`."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number", value)
        if not least <= value <= most:  # NaN is neither
            raise self.wrong(name, f"a number from {least:g} to {most:g}", value)
        return float(value)

    def reals(self, name: str, count: int, *, least: float, most: float) -> tuple[float, ...]:
        """A list of `count` numbers, each from `least` to `most`."""
        items = self._items(name, None, count)
        return tuple(item.real(name, least=least, most=most) for item in items)

    def section(self, name: str) -> Fields:
        """The object in this field."""
        value = self._get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return self._below(name, value)

    def section_or_empty(self, name: str) -> Fields:
        """The object in this field; one without fields where there is none."""
        return self.section(name) if self.has(name) else self._below(name, {})

    def wrong(self, name: str, wanted: str, value: object) -> Q35Error:
        """The error for a field that holds `value`, where `wanted` was needed."""
        return self._error(f"{self.where}: field {name!r} must be {wanted}, found {_shown(value)}")

    def _get(self, name: str, default: object = None) -> object:
        if name in self._data:
            return self._data[name]
        if default is None:
            raise self._error(f"{self.where} lacks the field {name!r}")
        return default

    def _items(self, name: str, default: object, count: int) -> list[Fields]:
        """Each item of a list as an object with the one field `name`."""
        value = self._get(name, default)
        if not isinstance(value, list | tuple) or len(value) != count:
            raise self.wrong(name, f"a list of {count} numbers", value)
        return [Fields({name: item}, self.where, self._error) for item in value]

    def _below(self, name: str, data: object) -> Fields:
        return Fields(data, f"{self.where}: {name}", self._error)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
