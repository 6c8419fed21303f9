"""Unsent messages by conversation: their texts, and where their pictures lie.

Owns one small file in the state folder and trusts nothing that stands in it. Knows no widget and
nothing of conversations but their ids.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from q35chat.files import alone_with, replace_file
from q35chat.text import safe_text

_MOST_BYTES: Final = 64 << 20
_LONGEST_PATH: Final = 4_096
_PRIVATE: Final = 0o600


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
    """Drafts by conversation id; the newest `LIMIT` are kept, `MOST_PICTURES` with each.

    Other windows write the same file. What is read here is as it was at the start, with what was
    put since; saved are only the drafts put here, beside what stands in the file by then.
    """

    LIMIT: Final = 50
    MOST_PICTURES: Final = 32

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, KeptDraft] = {}
        with suppress(OSError):
            self._kept = _limited(_standing(path))
        self._known = dict(self._kept)
        self._begun_with = frozenset(self._kept)
        self._put: dict[str, KeptDraft] = {}
        self._putting = threading.Lock()

    @classmethod
    def at_home(cls) -> Drafts:
        """The drafts of this user."""
        return cls(platformdirs.user_state_path("q35chat") / "drafts.json")

    @property
    def unsaved(self) -> bool:
        """Whether something was put that no save has taken yet."""
        return bool(self._put)

    def get(self, key: str) -> str:
        """The text of a conversation's draft; empty if there is none."""
        return self._kept.get(key, _NOTHING).text

    def pictures(self, key: str) -> tuple[KeptPicture, ...]:
        """The pictures of a conversation's draft."""
        return self._kept.get(key, _NOTHING).pictures

    def put(self, key: str, text: str, pictures: tuple[KeptPicture, ...] = ()) -> None:
        """Remember a draft, or forget it when empty."""
        draft = KeptDraft(text, pictures[: self.MOST_PICTURES])
        draft = _NOTHING if draft.empty else draft
        if draft == self._kept.get(key, _NOTHING):
            return
        _place(self._kept, key, draft)
        _limited(self._kept)
        with self._putting:
            self._put.pop(key, None)
            self._put[key] = draft

    def save(self) -> None:
        """Write what was put here into the file; saves in several threads follow each other, and
        the last one has the newest. A draft that was forgotten here stays where another window
        has changed it meanwhile. Raises OSError, then it is still to be saved."""
        with alone_with(self._path):
            with self._putting:
                put, self._put = self._put, {}
            try:
                self._merge(put)
            except OSError:
                with self._putting:
                    self._put = put | self._put
                raise

    def forget(self, key: str) -> None:
        """Remove the draft of a conversation that is gone for good, whoever wrote it. Raises
        OSError."""
        self._kept.pop(key, None)
        with alone_with(self._path):
            with self._putting:
                self._put.pop(key, None)
            drafts = _standing(self._path)
            if drafts.pop(key, None) is not None:
                self._write(drafts)
            self._known.pop(key, None)

    def sweep(self, known: Container[str]) -> None:
        """Forget what stood here at the start for conversations that are not `known`. Raises
        OSError."""
        for key in self._begun_with:
            if key in self._known and key not in known:
                self.forget(key)

    def _merge(self, put: dict[str, KeptDraft]) -> None:
        drafts = _standing(self._path)
        for key, draft in put.items():
            known = self._known.get(key, _NOTHING)
            foreign = drafts.get(key, _NOTHING) != known
            if draft != known and not (draft.empty and foreign):
                _place(drafts, key, draft)
        self._write(drafts)
        self._known |= put

    def _write(self, drafts: dict[str, KeptDraft]) -> None:
        document = {key: _written(draft) for key, draft in _limited(drafts).items()}
        replace_file(self._path, json.dumps(document), mode=_PRIVATE)


def _place(drafts: dict[str, KeptDraft], key: str, draft: KeptDraft) -> None:
    """As the newest; an empty one goes."""
    drafts.pop(key, None)
    if not draft.empty:
        drafts[key] = draft


def _limited(drafts: dict[str, KeptDraft]) -> dict[str, KeptDraft]:
    """The same ones, without the oldest where they are too many."""
    while len(drafts) > Drafts.LIMIT:
        del drafts[next(iter(drafts))]
    return drafts


def _written(draft: KeptDraft) -> object:
    """A draft without pictures is just its text, as earlier versions wrote it."""
    if not draft.pictures:
        return draft.text
    pictures = [
        {"name": picture.name, "path": "" if picture.path is None else str(picture.path)}
        for picture in draft.pictures
    ]
    return {"text": draft.text, "pictures": pictures}


def _standing(path: Path) -> dict[str, KeptDraft]:
    """The drafts in the file, none where it makes no sense. Raises OSError where it is there and
    cannot be read."""
    try:
        whole = path.is_file() and path.stat().st_size <= _MOST_BYTES
        document = json.loads(path.read_text("utf-8")) if whole else None
    except (FileNotFoundError, ValueError, RecursionError):
        document = None
    found = document.items() if isinstance(document, dict) else ()
    drafts = {key: _draft(value) for key, value in found}
    return {key: draft for key, draft in drafts.items() if not draft.empty}


def _draft(value: object) -> KeptDraft:
    match value:
        case str(text):
            return KeptDraft(safe_text(text))
        case {"text": str(text), "pictures": list(listed)}:
            found = map(_picture, listed[: Drafts.MOST_PICTURES])
            return KeptDraft(safe_text(text), tuple(it for it in found if it is not None))
    return _NOTHING


def _picture(value: object) -> KeptPicture | None:
    match value:
        case {"name": str(name), "path": str(path)} if name.strip():
            return KeptPicture(name, _path(path))
    return None


def _path(text: str) -> Path | None:
    """An absolute path that the system would take, whether or not anything is there."""
    try:
        taken = 0 < len(os.fsencode(text)) <= _LONGEST_PATH and "\0" not in text
    except UnicodeEncodeError:
        return None
    return Path(text) if taken and Path(text).is_absolute() else None
