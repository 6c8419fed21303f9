"""The user's settings file: TOML in the configuration folder, read strictly, written by the user.

Knows the keys, their types and their defaults; knows nothing of who uses them. A command's
option always wins over the file.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from platformdirs import user_config_path

from q35chat.errors import UsageError
from q35chat.files import locked, replace_file
from q35chat.text import safe_line
from q35chat.user_input import SAMPLING_RANGES, WHOLE_OPTIONS, Speculate

FILE_NAME = "settings.toml"


@dataclass(frozen=True, slots=True)
class EndpointEntry:
    """A server that the user named, `[endpoint.NAME]` in the file."""

    url: str = ""
    """Where it is: http://HOST:PORT/v1."""

    model: str = ""
    """The model's name there; empty: the only one that it has."""

    api_key_env: str = ""
    """The environment variable that holds the key."""

    api_key_keyring: str = ""
    """The name under which the system's keyring has the key, in the service `q35chat`."""

    capacity: int = 0
    """Slots of a chat, where the server does not say it."""

    wait_s: int = 600
    """The most seconds until the first token."""

    ca_file: str = ""
    """The certificates of who signs the server's own, where the system does not know them."""


@dataclass(frozen=True, slots=True)
class PersonaEntry:
    """How one kind of chat begins, `[persona.NAME]` in the file; what is None is as everywhere."""

    system: str | None = None
    """The system prompt."""

    thinking: bool | None = None
    """Whether the model reasons before it answers."""

    thinking_budget: int | None = None
    """The most tokens of its reasoning."""

    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling options, as the command line names them with `_`, in place of the checkpoint's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user sets once."""

    model_dir: str = ""
    """The bundle to use when none is given; empty: `out/`, else the demo."""

    max_image_tokens: int = 1024
    """The most tokens a picture may take."""

    thinking: bool = False
    """Whether the model reasons before it answers."""

    speculate: Speculate = "auto"
    """Whether to guess the next tokens and compute several at once: same answers, sooner."""

    system: str = ""
    """The system prompt of new chats."""

    default_persona: str = ""
    """The persona of new chats."""

    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling options of new chats, `[sampling]` in the file, in place of the checkpoint's."""

    persona: Mapping[str, PersonaEntry] = field(default_factory=dict)
    """Ways to begin a chat, by the names under which a user chooses them."""

    endpoint: Mapping[str, EndpointEntry] = field(default_factory=dict)
    """Servers by the names under which a user chooses them."""


def settings_path() -> Path:
    """Where the settings file is, whether or not it exists."""
    return user_config_path("q35chat") / FILE_NAME


def load_settings(path: Path | None = None) -> Settings:
    """The settings in the file `path`; the defaults where there is none.

    Raises UsageError naming file, line and key for anything that is not understood.
    """
    path = path or settings_path()
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            raise UsageError(f"{safe_line(str(path))} is no file; make it one or delete it")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {safe_line(str(path))}: {error}; fix or delete it"
        ) from error
    import tomllib  # noqa: PLC0415 - few have the file, and the first paint would wait for it

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        reason = safe_line(str(error))
        raise UsageError(f"{safe_line(str(path))} is not TOML: {reason}; fix it") from error
    return Settings(**_Reader(path, text).settings(values))


def change_setting(key: str, value: str, path: Path | None = None) -> None:
    """Set a text in the file and leave the rest as the user wrote it; the file is made where there
    is none.

    Raises UsageError for a file that is wrong already, or that cannot be written.
    """
    path = path or settings_path()
    load_settings(path)
    line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(path.with_name(f".{path.name}.lock")):
            text = path.read_text("utf-8") if path.exists() else ""
            head, tables = _split_at_tables(text)
            written = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=.*$", re.MULTILINE)
            if written.search(head):
                head = written.sub(lambda _: line, head, count=1)
            else:
                head = f"{head.rstrip()}\n{line}\n" if head.strip() else f"{line}\n"
                head += "\n" if tables else ""
            replace_file(path, head + tables)
    except OSError as error:
        raise UsageError(f"cannot write {safe_line(str(path))}: {error}") from error
    load_settings(path)


def _split_at_tables(text: str) -> tuple[str, str]:
    """What stands before the first table, and the rest."""
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    at = table.start() if table else len(text)
    return text[:at], text[at:]


_NAMES: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}
_LEAST: dict[str, int] = {"max_image_tokens": 1, "capacity": 0, "wait_s": 1}
_ENDPOINTS = "endpoint"
_TABLES = {_ENDPOINTS, "persona", "sampling"}
_PERSONA: dict[str, type] = {"system": str, "thinking": bool, "thinking_budget": int}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks what a file holds; every message says where in it."""

    path: Path
    text: str

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values for `Settings`. Raises UsageError."""
        plain = {key: value for key, value in values.items() if key not in _TABLES}
        checked = self._checked(plain, Settings)
        if "sampling" in values:
            checked["sampling"] = self._sampling(values["sampling"], "sampling")
        if personas := self._table(values, "persona"):
            checked["persona"] = {name: self._persona(name, it) for name, it in personas.items()}
        default = checked.get("default_persona", "")
        if default and default not in personas:
            where = self._where("default_persona")
            raise UsageError(f"{where} names {safe_line(default)}, and there is no such [persona]")
        if endpoints := self._table(values, _ENDPOINTS):
            checked[_ENDPOINTS] = {name: self._entry(name, endpoints[name]) for name in endpoints}
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
        for key, value in own.items():
            where = self._where(key, section)
            if key not in _PERSONA:
                known = ", ".join([*_PERSONA, *SAMPLING_RANGES])
                raise UsageError(f"{where} is no setting of a persona; they are {known}")
            if type(value) is not _PERSONA[key]:
                found = safe_line(repr(value))
                raise UsageError(f"{where} must be {_NAMES[_PERSONA[key]]}, not {found}")
            if isinstance(value, int) and key == "thinking_budget" and value < 1:
                raise UsageError(f"{where} must be at least 1, not {value}")
        return PersonaEntry(**own, sampling=self._sampling(options, section))

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

    def _entry(self, name: str, values: object) -> EndpointEntry:
        section = f"{_ENDPOINTS}.{name}"
        if not isinstance(values, dict):
            raise UsageError(f"{self._where(_ENDPOINTS)} must be [endpoint.NAME] with its keys")
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
        kind: type[Settings] | type[EndpointEntry],
        section: str = "",
    ) -> dict[str, Any]:
        kinds = {one.name: type(one.default) for one in fields(kind) if one.name not in _TABLES}
        for key, value in values.items():
            where = self._where(key, section)
            if key not in kinds:
                raise UsageError(f"{where} is no setting; the settings are {', '.join(kinds)}")
            if type(value) is not kinds[key]:
                found = safe_line(repr(value))
                raise UsageError(f"{where} must be {_NAMES[kinds[key]]}, not {found}")
            if isinstance(value, int) and value < _LEAST.get(key, value):
                raise UsageError(f"{where} must be at least {_LEAST[key]}, not {value}")
            if key == "speculate" and value not in get_args(Speculate):
                choices = ", ".join(get_args(Speculate))
                raise UsageError(f"{where} must be one of {choices}, not {safe_line(repr(value))}")
        return dict(values)

    def _where(self, key: str, section: str = "") -> str:
        """The place of a key in the file, for a message to go on from."""
        lines = self.text.splitlines()
        start = _line_of(section, lines) if section else 1
        number = start - 1 + _line_of(key, lines[start - 1 :])
        return f"{safe_line(str(self.path))}, line {number}: {safe_line(key)}"


_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def _line_of(key: str, lines: Sequence[str]) -> int:
    """The number of the first of `lines` that sets `key` or begins its table; 1 for none."""
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b")
    return next((n for n, line in enumerate(lines, 1) if pattern.match(line)), 1)
