"""What may be completed at the cursor: a slash command, or a path after `@`.

`listing` reads a folder and belongs in a worker thread; the rest is pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from q35chat.file_kinds import attachable
from q35chat.settings.templates import Template
from q35chat.tui.commands import BY_SLASH
from q35chat.user_input import typed_path

_MOST_SHOWN: Final = 8
_MOST_SCANNED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Choice:
    """One suggestion: what is shown, what replaces the word, and the file it names if any."""

    label: str
    insert: str
    detail: str = ""
    file: Path | None = None


def slash_choices(line: str, templates: Mapping[str, Template]) -> tuple[Choice, ...]:
    """Commands that a line `/na` may become, the application's first, then the user's own."""
    if not line.startswith("/") or " " in line:
        return ()
    found = [
        Choice(f"/{name} {command.argument}".rstrip(), f"/{name} ", command.title)
        for name, command in BY_SLASH.items()
        if name.startswith(line[1:].lower())
    ]
    own = [it for name, it in templates.items() if name.startswith(line[1:].lower())]
    room = max(0, _MOST_SHOWN - len(found))
    found += [
        Choice(f"/{it.name} TEXT", f"/{it.name} ", it.head)
        for it in own[:room]
        if it.name not in BY_SLASH
    ]
    return tuple(found[:_MOST_SHOWN])


def path_word(before_cursor: str) -> str | None:
    """The path being typed after an `@` that starts a word, without the `@`; else None."""
    at = before_cursor.rfind("@")
    if at < 0 or (at and not before_cursor[at - 1].isspace()):
        return None
    word = before_cursor[at + 1 :]
    return None if word.endswith(" ") or "@" in word else word


def begins(choice: Choice, word: str) -> bool:
    """Whether a word is the beginning of what a choice names: its path, or the last part of it.
    Other words have their letters in it, and may mean somebody who is called so."""
    path = choice.label.lower()
    return path.startswith(word.lower()) or path.rpartition("/")[2].startswith(word.lower())


def listing(word: str, start: Path, most: int = _MOST_SHOWN) -> tuple[Choice, ...]:
    """Folders and files whose path begins with `word`: what is called so, then folders."""
    folder_text, slash, prefix = word.rpartition("/")
    typed = typed_path(folder_text + slash or ".")
    folder = typed if typed.is_absolute() else start / typed
    choices: list[Choice] = []
    for name, is_folder in _entries(folder, prefix):
        if len(choices) == most:
            break
        shown = f"{folder_text}{slash}{name}"
        if is_folder:
            choices.append(Choice(f"{shown}/", f"@{shown}/", "folder"))
        elif kind := attachable(folder / name):
            choices.append(Choice(shown, "", kind, folder / name))
    return tuple(choices)


def _entries(folder: Path, prefix: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for index, entry in enumerate(entries):
                if index >= _MOST_SCANNED:
                    break
                hidden = entry.name.startswith(".") and not prefix.startswith(".")
                begins = entry.name.lower().startswith(prefix.lower())
                if begins and not hidden and entry.name != prefix:
                    found.append((entry.name, entry.is_dir()))
        found.sort(key=lambda entry: (not entry[1], entry[0].lower()))
        whole = folder / prefix
        if prefix not in {"", "."} and whole.exists():
            found.insert(0, (prefix, whole.is_dir()))
    except (OSError, ValueError):
        return []
    return found
