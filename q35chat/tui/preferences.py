"""What the application itself remembers: theme, keys, pictures on or off.

`interface.toml` in the configuration folder is written for people to edit. Knows no widget and
nothing of conversations.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import platformdirs

from q35chat.tui.images.graphics import GRAPHICS_PREFERENCES, GraphicsPreference
from q35chat.tui.user_files import alone_with, replace_file

DEFAULT_THEME: Final = "q35-dark"
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEMPLATE: Final = """\
# Written by the application when a setting changes; edit freely while it is closed.
theme = {theme}
# {choices}
pictures = {pictures}
# whether the terminal tells of a long answer that is complete while you look elsewhere
notify = {notify}

# Other keys for a command, named as F1 shows it behind the slash: regenerate = "f9"
[keys]
{keys}"""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The interface's own settings. `keys` maps commands to keys like `ctrl+r,f9`."""

    theme: str = DEFAULT_THEME
    pictures: GraphicsPreference = "auto"
    keys: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    notify: bool = True


def preferences_path() -> Path:
    """Where the settings file of the interface is."""
    return platformdirs.user_config_path("q35chat") / "interface.toml"


def load_preferences(path: Path) -> Preferences:
    """Read the file; what is missing or wrong keeps its default, and `problem` says so."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            return Preferences(problem=f"{path} is no file; the defaults are used")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Preferences()
    except (OSError, ValueError) as error:
        return _unread(path, error)
    import tomllib  # noqa: PLC0415 - few have the file, and the first paint would wait for it

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return _unread(path, error)
    notify = document.get("notify", True)
    theme, keys = document.get("theme", DEFAULT_THEME), document.get("keys", {})
    pictures = _preference(document.get("pictures", "auto"))
    texts = isinstance(keys, dict) and all(isinstance(value, str) for value in keys.values())
    sound = isinstance(theme, str) and isinstance(notify, bool)
    if not (sound and pictures is not None and texts):
        choices = ", ".join(GRAPHICS_PREFERENCES)
        return Preferences(
            problem=f"{path}: theme must be text, pictures one of {choices}, notify true or false, "
            "keys a table of texts"
        )
    return Preferences(theme, pictures, keys, notify=notify)


def _unread(path: Path, error: Exception) -> Preferences:
    return Preferences(problem=f"{path} cannot be read ({error}); the defaults are used")


def _preference(value: object) -> GraphicsPreference | None:
    """Also what earlier versions wrote: true and false."""
    if isinstance(value, bool):
        return "auto" if value else "none"
    return next((one for one in GRAPHICS_PREFERENCES if one == value), None)


def change_preferences(path: Path, **changes: Any) -> str:
    """Change these fields in the file and leave the rest as it is by now, whoever wrote it; what is
    wrong with the file, and then nothing is changed. Raises OSError."""
    with alone_with(path):
        there = load_preferences(path)
        if not there.problem:
            save_preferences(path, replace(there, **changes))
        return there.problem


def save_preferences(path: Path, preferences: Preferences) -> None:
    """Replace the file as a whole. Raises OSError."""
    keys = "".join(
        f"{name if _BARE_KEY.fullmatch(name) else _quoted(name)} = {_quoted(keys)}\n"
        for name, keys in preferences.keys.items()
    )
    text = _TEMPLATE.format(
        theme=_quoted(preferences.theme),
        choices=", ".join(GRAPHICS_PREFERENCES),
        pictures=_quoted(preferences.pictures),
        notify="true" if preferences.notify else "false",
        keys=keys,
    )
    replace_file(path, text)


def _quoted(text: str) -> str:
    """A TOML string; TOML has no surrogates, and DEL only escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
