"""Checks what the file holds, key by key; every message says where in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from q35chat.errors import UsageError
from q35chat.settings.entries import EndpointEntry, PersonaEntry, Settings
from q35chat.text import safe_line
from q35chat.user_input import SAMPLING_RANGES, WHOLE_OPTIONS

_NAMES: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
}
_LEAST: Final = {
    "max_image_tokens": 1,
    "thinking_budget": 1,
    "max_new_tokens": 1,
    "capacity": 0,
    "wait_s": 1,
}
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")

Entry = type[Settings] | type[PersonaEntry] | type[EndpointEntry]
_OF: Final[Mapping[Entry, str]] = {
    Settings: "",
    PersonaEntry: " of a persona",
    EndpointEntry: " of a server",
}


@dataclass(frozen=True, slots=True)
class _Key:
    """What a key takes: a value of a type, one of `choices` where there are any."""

    kind: type
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsReader:
    """Checks what stands in the file `path`, whose text says where."""

    path: Path
    text: str

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values for `Settings`. Raises UsageError."""
        tables = {"sampling", "shortcuts", "persona", "endpoint"}
        plain = {key: value for key, value in values.items() if key not in tables}
        checked = self._checked(plain, Settings)
        if "sampling" in values:
            checked["sampling"] = self._sampling(values["sampling"], "sampling")
        if personas := self._table(values, "persona"):
            checked["persona"] = {name: self._persona(name, it) for name, it in personas.items()}
        default = checked.get("default_persona", "")
        if default and default not in personas:
            where = self._where("default_persona")
            raise UsageError(f"{where} names {safe_line(default)}, and there is no such [persona]")
        if "shortcuts" in values:
            checked["shortcuts"] = self._shortcuts(values["shortcuts"])
        if endpoints := self._table(values, "endpoint"):
            checked["endpoint"] = {name: self._entry(name, endpoints[name]) for name in endpoints}
        return checked

    def _table(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        table = values.get(key, {})
        if not isinstance(table, dict):
            found = safe_line(repr(table))
            raise UsageError(f"{self._where(key)} must be [{key}.NAME], not {found}")
        return table

    def _persona(self, name: str, values: object) -> PersonaEntry:
        section = f"persona.{name}"
        if not isinstance(values, dict):
            raise UsageError(f"{self._where('persona')} must be [persona.NAME] with its keys")
        options = {key: value for key, value in values.items() if key in SAMPLING_RANGES}
        own = {key: value for key, value in values.items() if key not in options}
        checked = self._checked(own, PersonaEntry, section, tuple(SAMPLING_RANGES))
        return PersonaEntry(**checked, sampling=self._sampling(options, section))

    def _sampling(self, values: object, section: str) -> Mapping[str, float]:
        """Options within their ranges, whole ones as whole numbers."""
        if not isinstance(values, dict):
            raise UsageError(f"{self._where(section)} must be a table of sampling options")
        for key, value in values.items():
            where = self._where(key, section)
            if key not in SAMPLING_RANGES:
                known = ", ".join(SAMPLING_RANGES)
                raise UsageError(f"{where} is no sampling option; they are {known}")
            low, high = SAMPLING_RANGES[key]
            is_number = type(value) is int or (type(value) is float and key not in WHOLE_OPTIONS)
            if not is_number or not low <= value <= high:
                found = safe_line(repr(value))
                raise UsageError(f"{where} must be a number from {low:g} to {high:g}, not {found}")
        return dict(values)

    def _shortcuts(self, values: object) -> Mapping[str, str]:
        """Texts by names."""
        if not isinstance(values, dict):
            where = self._where("shortcuts")
            raise UsageError(f"{where} must be a table of keys by the names of commands")
        for name, keys in values.items():
            if not isinstance(keys, str):
                where = self._where(name, "shortcuts")
                raise UsageError(f'{where} must be keys in a text like "ctrl+r, f9"')
        return values

    def _entry(self, name: str, values: object) -> EndpointEntry:
        section = f"endpoint.{name}"
        if not isinstance(values, dict):
            raise UsageError(f"{self._where('endpoint')} must be [endpoint.NAME] with its keys")
        if "api_key" in values:
            raise UsageError(
                f"{self._where('api_key', section)} does not belong into this file; name the "
                "variable of the environment that holds the key with api_key_env"
            )
        entry = EndpointEntry(**self._checked(values, EndpointEntry, section))
        if not entry.url:
            raise UsageError(f"{self._where(section)} needs url, like http://HOST:8000/v1")
        if entry.api_key_env and not _VARIABLE.fullmatch(entry.api_key_env):
            where = self._where("api_key_env", section)
            raise UsageError(f"{where} must be the name of a variable, in capital letters")
        return entry

    def _checked(
        self,
        values: Mapping[str, Any],
        entry: Entry,
        section: str = "",
        more: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Values of plain keys of an entry; `more` are keys that it takes beside them."""
        keys = _keys(entry)
        for name, value in values.items():
            where = self._where(name, section)
            if name not in keys:
                known, of = ", ".join([*keys, *more]), _OF[entry]
                raise UsageError(f"{where} is no setting{of}; the settings{of} are {known}")
            key = keys[name]
            if type(value) is not key.kind:
                found = safe_line(repr(value))
                raise UsageError(f"{where} must be {_NAMES[key.kind]}, not {found}")
            if isinstance(value, int) and value < _LEAST.get(name, value):
                raise UsageError(f"{where} must be at least {_LEAST[name]}, not {value}")
            if key.choices and value not in key.choices:
                choices = ", ".join(key.choices)
                raise UsageError(f"{where} must be one of {choices}, not {safe_line(repr(value))}")
        return dict(values)

    def _where(self, key: str, section: str = "") -> str:
        """The place of a key in the file, for a message to go on from."""
        lines = self.text.splitlines()
        start = _line_of(section, lines) if section else 1
        number = start - 1 + _line_of(key, lines[start - 1 :])
        return f"{safe_line(str(self.path))}, line {number}: {safe_line(key)}"


def _keys(entry: Entry) -> dict[str, _Key]:
    """The keys of an entry but its tables."""
    hints = get_type_hints(entry)
    return {one.name: key for one in fields(entry) if (key := _key(hints[one.name])) is not None}


def _key(hint: Any) -> _Key | None:  # noqa: ANN401 - of any kind
    """What a field with this type takes; None for a table."""
    if get_origin(hint) is Literal:
        return _Key(str, get_args(hint))
    if isinstance(hint, UnionType):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    return _Key(hint) if hint in _NAMES else None


def _line_of(key: str, lines: Sequence[str]) -> int:
    """The number of the first of `lines` that sets `key` or begins its table; 1 for none."""
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b")
    return next((n for n, line in enumerate(lines, 1) if pattern.match(line)), 1)
