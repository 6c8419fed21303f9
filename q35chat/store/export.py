"""A conversation as a Markdown file with its pictures beside it, or as JSON with every branch.

What a model wrote is data: control characters become visible in Markdown and escapes in JSON.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from q35chat.chat.values import Attachment, Turn
from q35chat.errors import StoreError
from q35chat.safe_text import json_safe, safe_line, safe_text
from q35chat.store.records import ConversationRecord, TurnRecord
from q35chat.store.store import Store
from q35chat.store.tree import TurnTree

JSON_SCHEMA = 1
_NAME_LENGTH = 60
_SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System"}
_MARKS = {
    "cancelled": "stopped",
    "capacity": "capacity reached",
    "length": "length limit reached",
    "loop": "stopped in a loop",
}


def export_markdown(store: Store, session: str, folder: Path) -> Path:
    """Write the branch being read as `folder/TITLE.md`; pictures go to `folder/TITLE-pictures/`.

    Existing files stay: a number is added to the name. Raises StoreError.
    """
    record, turns = store.load(session)
    path = TurnTree(turns).path(record.head)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = _free_name(folder, _file_name(record))
        pictures = _Pictures(target.with_name(f"{target.stem}-pictures"))
        blocks = [f"# {_line(record.title)}", _heading_note(record)]
        for turn in path:
            blocks += _turn_blocks(turn, pictures)
        with target.open("x", encoding="utf-8") as file:
            file.write("\n\n".join(blocks) + "\n")
    except OSError as error:
        raise StoreError(
            f"The conversation cannot be written to {folder}: {error.strerror}. "
            "Choose another folder with --output."
        ) from error
    return target


def export_json(store: Store, session: str) -> str:
    """The conversation as one JSON object: every branch, token ids, settings and timings."""
    record, turns = store.load(session)
    value = {
        "schema": JSON_SCHEMA,
        "id": record.id,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
        "settings": asdict(record.settings),
        "active": [turn.id for turn in TurnTree(turns).path(record.head)],
        "turns": [_turn_value(store, turn) for turn in turns],
    }
    return json_safe(json.dumps(value, ensure_ascii=False, indent=2))


class _Pictures:
    """The folder beside the Markdown file, made when the first picture comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def add(self, picture: Attachment) -> str:
        self._count += 1
        name = _line(picture.name).replace("[", "(").replace("]", ")") or "picture"
        if not picture.data:
            return f"*{name}: this picture is missing*"
        self._folder.mkdir(exist_ok=True)
        suffix = Path(picture.name).suffix.lower()
        suffix = suffix if re.fullmatch(r"\.[a-z0-9]{1,5}", suffix) else ".img"
        file = f"picture-{self._count}{suffix}"
        (self._folder / file).write_bytes(picture.data)
        return f"![{name}](<{self._folder.name}/{file}>)"


def _turn_blocks(record: TurnRecord, pictures: _Pictures) -> list[str]:
    turn = record.turn
    blocks = [f"## {_SPEAKERS[turn.role]}"]
    blocks += [pictures.add(picture) for picture in turn.attachments]
    if turn.reasoning.strip():
        lines = safe_text(turn.reasoning.strip()).split("\n")
        blocks.append("\n".join(f"> {line}".rstrip() for line in ["*Reasoning*", "", *lines]))
    if turn.text:
        blocks.append(safe_text(turn.text))
    marks = [_mark(turn), _line(record.note)]
    blocks += [f"*({text})*" for text in marks if text]
    return blocks


def _line(text: str) -> str:
    return safe_line(" ".join(text.split()))


def _mark(turn: Turn) -> str:
    if turn.role != "assistant":
        return ""
    return "interrupted" if turn.finish is None else _MARKS.get(turn.finish, "")


def _heading_note(record: ConversationRecord) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.updated))
    return f"*q35chat conversation {record.id}, {day}*"


def _file_name(record: ConversationRecord) -> str:
    words = re.sub(r"[^\w\- ]+", " ", record.title)
    return "-".join(words.split())[:_NAME_LENGTH].strip("-.") or f"conversation-{record.id}"


def _free_name(folder: Path, stem: str) -> Path:
    target, count = folder / f"{stem}.md", 1
    while target.exists() or target.with_name(f"{target.stem}-pictures").exists():
        count += 1
        target = folder / f"{stem}-{count}.md"
    return target


def _turn_value(store: Store, record: TurnRecord) -> dict[str, Any]:
    turn = record.turn
    return {
        "id": record.id,
        "parent": record.parent,
        "role": turn.role,
        "text": turn.text,
        "reasoning": turn.reasoning,
        "token_ids": turn.token_ids,
        "finish_reason": turn.finish,
        "note": record.note,
        "left_out": record.left_out,
        "model": record.model,
        "created": record.created,
        "pictures": [
            {
                "sha256": picture.sha256,
                "name": picture.name,
                "width": picture.width,
                "height": picture.height,
                "tokens": picture.tokens,
                "file": str(store.pictures.path(picture.sha256)),
            }
            for picture in turn.attachments
        ],
        "settings": None if record.settings is None else asdict(record.settings),
        "usage": None if record.usage is None else asdict(record.usage),
    }
