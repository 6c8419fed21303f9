"""What earlier versions kept in a file of the screen's own, `interface.toml`, and where it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from q35chat.errors import UsageError
from q35chat.files import replace_file
from q35chat.settings.entries import Settings
from q35chat.settings.file import (
    PRIVATE,
    changed_text,
    changing,
    document_of,
    settings_of,
    settings_path,
    text_of,
)
from q35chat.settings.reader import SettingsReader
from q35chat.text import safe_line

_NAMES: Final = {"theme": "theme", "pictures": "pictures", "notify": "notify", "keys": "shortcuts"}
_DRAWN: Final = {True: "auto", False: "none"}
"""What still earlier versions wrote of pictures."""


def take_over_interface(path: Path | None = None) -> str:
    """Bring what stands in `interface.toml` beside the settings file `path` into it, once: that
    file is called `interface.toml.old` from then on. What the settings say already stays.

    Why that could not be done, in words, and then both files are as they were; else empty.
    """
    path = path or settings_path()
    old = path.with_name("interface.toml")
    if not old.exists():
        return ""
    try:
        with changing(path):
            _take_over(old, path)
    except UsageError as error:
        return f"{safe_line(str(old))} is not used any more, its lines go into {path.name}: {error}"
    return ""


def _take_over(old: Path, path: Path) -> None:
    written = text_of(old)
    if written is None:  # another window was faster
        return
    text = text_of(path) or ""
    settings_of(path, text)
    changes = _changes(document_of(old, written), document_of(path, text))
    SettingsReader(old, written).settings(changes)
    if changes:
        replace_file(path, changed_text(path, text, changes), mode=PRIVATE)
    old.rename(old.with_name(f"{old.name}.old"))


def _changes(written: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    """What of the old file is no default and not set yet."""
    plain, changes = Settings(), {}
    for former, name in _NAMES.items():
        value = written.get(former)
        if name == "pictures" and isinstance(value, bool):
            value = _DRAWN[value]
        if isinstance(value, dict):
            value = {key: keys for key, keys in value.items() if key not in there.get(name, {})}
        elif name in there:
            continue
        if value not in (None, getattr(plain, name)):
            changes[name] = value
    return changes
