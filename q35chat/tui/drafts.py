"""Unsent messages by conversation: their texts, and where their pictures lie.

Owns one small file in the state folder and trusts nothing that stands in it. Knows no widget and
nothing of conversations but their ids.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from q35chat.safe_text import safe_text
from q35chat.tui.preferences import replace_file

_MOST_BYTES: Final = 64 << 20
_LONGEST_PATH: Final = 4_096


@dataclass(frozen=True, slots=True)
class KeptPicture:
    """A picture of a draft: its name, and its file where that is known."""

    name: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class KeptDraft:
    """What was written and attached."""

    text: str = ""
    pictures: tuple[KeptPicture, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not (self.text.strip() or self.pictures)


_NOTHING: Final = KeptDraft()


class Drafts:
    """Drafts by conversation id; the newest `LIMIT` are kept, `MOST_PICTURES` with each."""

    LIMIT: Final = 50
    MOST_PICTURES: Final = 32

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)
        self._limit()

    @classmethod
    def at_home(cls) -> Drafts:
        """The drafts of this user."""
        return cls(platformdirs.user_state_path("q35chat") / "drafts.json")

    def get(self, key: str) -> str:
        """The text of a conversation's draft; empty if there is none."""
        return self._kept.get(key, _NOTHING).text

    def pictures(self, key: str) -> tuple[KeptPicture, ...]:
        """The pictures of a conversation's draft."""
        return self._kept.get(key, _NOTHING).pictures

    def put(self, key: str, text: str, pictures: tuple[KeptPicture, ...] = ()) -> bool:
        """Remember a draft, or forget it when empty; whether anything changed."""
        draft = KeptDraft(text, pictures[: self.MOST_PICTURES])
        if draft == self._kept.get(key, _NOTHING):
            return False
        self._kept.pop(key, None)
        if not draft.empty:
            self._kept[key] = draft
        self._limit()
        return True

    def save(self) -> None:
        """Write the file. Raises OSError."""
        document = {key: _written(draft) for key, draft in self._kept.copy().items()}
        replace_file(self._path, json.dumps(document))

    def _limit(self) -> None:
        while len(self._kept) > self.LIMIT:
            del self._kept[next(iter(self._kept))]


def _written(draft: KeptDraft) -> object:
    """A draft without pictures is just its text, as earlier versions wrote it."""
    if not draft.pictures:
        return draft.text
    pictures = [
        {"name": picture.name, "path": "" if picture.path is None else str(picture.path)}
        for picture in draft.pictures
    ]
    return {"text": draft.text, "pictures": pictures}


def _read(path: Path) -> dict[str, KeptDraft]:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return {}
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    drafts = {key: _draft(value) for key, value in document.items()}
    return {key: draft for key, draft in drafts.items() if not draft.empty}


def _draft(value: object) -> KeptDraft:
    if isinstance(value, str):
        return KeptDraft(safe_text(value))
    if not isinstance(value, dict):
        return _NOTHING
    text, pictures = value.get("text"), value.get("pictures")
    listed = pictures[: Drafts.MOST_PICTURES] if isinstance(pictures, list) else []
    found = (_picture(picture) for picture in listed)
    return KeptDraft(
        safe_text(text) if isinstance(text, str) else "",
        tuple(picture for picture in found if picture is not None),
    )


def _picture(value: object) -> KeptPicture | None:
    if not isinstance(value, dict):
        return None
    name, path = value.get("name"), _path(value.get("path"))
    if isinstance(name, str) and name.strip():
        return KeptPicture(name, path)
    return None if path is None else KeptPicture(path.name, path)


def _path(value: object) -> Path | None:
    """An absolute path that the system would take, whether or not anything is there."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PATH or "\0" in value:
        return None
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return None
    return Path(value) if Path(value).is_absolute() else None
