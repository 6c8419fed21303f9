"""Prompt templates: text files in a folder beside the settings file, each a command by its name.

Owns how they are named, found and filled; knows nothing of who asks with them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from q35chat.errors import UsageError
from q35chat.settings.file import settings_path
from q35chat.text import readable_size, safe_line

MOST_BYTES: Final = 1_000_000
_INPUT: Final = re.compile(r"\$input\b")
_NAME: Final = re.compile(r"([\w-]+)\.(?:md|txt)", re.IGNORECASE)
_SHOWN: Final = 60
_HEAD_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Template:
    """A file whose text is asked; `$input` in it stands for what a user writes behind its name."""

    name: str
    path: Path

    def filled(self, text: str) -> str:
        """The file's text with `text` for each `$input`, or behind it where it has none. Raises
        UsageError for a file that cannot be read."""
        written = self._read(MOST_BYTES + 1)
        if len(written) > MOST_BYTES:
            raise UsageError(f"{self._shown} is over the limit of {readable_size(MOST_BYTES)}")
        try:
            template = written.decode("utf-8").replace("\r\n", "\n").strip("\n")
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._shown} is not UTF-8; convert it") from error
        if _INPUT.search(template):
            return _INPUT.sub(lambda _: text, template)
        return "\n\n".join(part for part in (template, text) if part)

    @property
    def head(self) -> str:
        """Its first line, for a list; empty where the file cannot be read."""
        try:
            start = self._read(_HEAD_BYTES).decode("utf-8", "replace")
        except UsageError:
            return ""
        return safe_line(start.strip().partition("\n")[0].rstrip(), limit=_SHOWN)

    @property
    def _shown(self) -> str:
        return f"the template {safe_line(str(self.path))}"

    def _read(self, most: int) -> bytes:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a pipe would be waited for
                raise UsageError(f"{self._shown} is no file; make it one or delete it")
            with self.path.open("rb") as file:
                return file.read(most)
        except OSError as error:
            said = error.strerror or error
            raise UsageError(f"{self._shown} cannot be read: {said}") from error


def templates_folder() -> Path:
    """Where the templates are, whether or not there are any."""
    return settings_path().with_name("templates")


def templates() -> Mapping[str, Template]:
    """All of them by their names, which are those of the files in small letters: `review` for
    `Review.md` or `review.txt`."""
    found: dict[str, Template] = {}
    try:
        files = sorted(templates_folder().iterdir())
    except OSError:
        return found
    for file in files:
        if match := _NAME.fullmatch(file.name):
            name = match[1].lower()
            found.setdefault(name, Template(name, file))
    return found


def named_template(name: str) -> Template:
    """The template with this name. Raises UsageError, which names those that are there."""
    there = templates()
    if name.lower() not in there:
        known = ", ".join(there) or "none"
        raise UsageError(
            f"there is no template {safe_line(name)}; {safe_line(known)} is there, and a file "
            f"NAME.md in {safe_line(str(templates_folder()))} makes one"
        )
    return there[name.lower()]


def typed_template(text: str) -> tuple[Template, str] | None:
    """The template and its input of a text like `/review ...`, of any number of lines; None where
    it begins with none."""
    match = re.match(r"/([\w-]+)(?:\s+|\Z)", text)
    template = templates().get(match[1].lower()) if match else None
    return None if match is None or template is None else (template, text[match.end() :].strip())
