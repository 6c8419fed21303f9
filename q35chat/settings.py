"""The user's settings file: TOML in the configuration folder, read strictly, written by the user.

Knows the keys, their types and their defaults; knows nothing of who uses them. A command's
option always wins over the file.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from platformdirs import user_config_path

from q35chat.errors import UsageError
from q35chat.text import safe_line
from q35chat.user_input import Speculate

FILE_NAME = "settings.toml"


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
    return Settings(**_checked(values, text, path))


def _checked(values: Mapping[str, Any], text: str, path: Path) -> dict[str, Any]:
    kinds: dict[str, type] = {field.name: type(field.default) for field in fields(Settings)}
    checked: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{safe_line(str(path))}, line {_line_of(key, text)}: {safe_line(key)}"
        if key not in kinds:
            raise UsageError(f"{where} is no setting; the settings are {', '.join(kinds)}")
        if type(value) is not kinds[key]:
            raise UsageError(f"{where} must be {_NAMES[kinds[key]]}, not {safe_line(repr(value))}")
        if isinstance(value, int) and key == "max_image_tokens" and value < 1:
            raise UsageError(f"{where} must be at least 1, not {value}")
        if key == "speculate" and value not in get_args(Speculate):
            choices = ", ".join(get_args(Speculate))
            raise UsageError(f"{where} must be one of {choices}, not {safe_line(repr(value))}")
        checked[key] = value
    return checked


_NAMES: dict[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}


def _line_of(key: str, text: str) -> int:
    pattern = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}\b")
    return next((n for n, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)
