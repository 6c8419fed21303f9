"""A conversation as a Markdown file with its pictures beside it, or as JSON with every branch.

What a model wrote is data: control characters become visible in Markdown and escapes in JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.history.tree import TurnTree
from q35chat.chat.summary import quotation
from q35chat.chat.values import HEADING, Attachment, Turn
from q35chat.errors import StoreError
from q35chat.files import lock, replace_file
from q35chat.text import json_safe, safe_line, safe_text

JSON_SCHEMA = 1
Place = Callable[[Attachment], str]
Loaded = tuple[ConversationRecord, tuple[TurnRecord, ...]]
_NAME_LENGTH = 60
_UNFINISHED = ".q35chat-unfinished"
_SHOWN = ("sha256", "name", "width", "height", "tokens")
_SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_MARKS = {
    "cancelled": "stopped",
    "capacity": "capacity reached",
    "length": "length limit reached",
    "loop": "stopped in a loop",
}


def as_markdown(loaded: Loaded, place: Place) -> str:
    """The branch being read, with each picture where `place` says."""
    record, turns = loaded
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.updated))
    blocks = [f"# {_line(record.title)}", f"*q35chat conversation {_line(record.id)}, {day}*"]
    blocks += _quoted(HEADING, record.summary)
    for turn in TurnTree(turns).path(record.head):
        blocks += _turn_blocks(turn, place)
    return "\n\n".join(blocks) + "\n"


def write_markdown(loaded: Loaded, folder: Path) -> Path:
    """Write the branch being read as `folder/TITLE.md`; pictures go to `folder/TITLE-pictures/`.

    Existing files stay: a number is added to the name. Raises StoreError, and then nothing is left.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _placed(folder, _file_name(loaded[0]), ".md") as (target, work):
            _write_with_pictures(loaded, target, work)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return target


def write_json(loaded: Loaded, place: Place, target: Path) -> Path:
    """Write all of the conversation to the file `target`, or as `target/TITLE.json` where that is
    a folder. Raises StoreError, and then what stood there stays."""
    text = as_json(loaded, place) + "\n"
    try:
        if not target.is_dir():
            replace_file(target, text)
            return target
        with _placed(target, _file_name(loaded[0]), ".json") as (written, work):
            replace_file(work / written.name, text)
    except OSError as error:
        raise _unwritable(target, error) from error
    return written


def as_json(loaded: Loaded, place: Place) -> str:
    """The conversation as one JSON object: every branch, token ids, settings and timings."""
    record, turns = loaded
    value = {
        "schema": JSON_SCHEMA,
        "id": record.id,
        "title": record.title,
        "created": record.created,
        "updated": record.updated,
        "settings": asdict(record.settings),
        "summary": record.summary,
        "active": [turn.id for turn in TurnTree(turns).path(record.head)],
        "turns": [_turn_value(turn, place) for turn in turns],
    }
    return json_safe(json.dumps(value, ensure_ascii=False, indent=2))


def _write_with_pictures(loaded: Loaded, target: Path, work: Path) -> None:
    written: list[Path] = []

    def add(picture: Attachment) -> str:
        suffix = Path(picture.name).suffix.lower()
        suffix = suffix if re.fullmatch(r"\.[a-z0-9]{1,5}", suffix) else ".img"
        written.append(work / f"picture-{len(written) + 1}{suffix}")
        written[-1].write_bytes(picture.data)
        return f"{_pictures_of(target).name}/{written[-1].name}"

    (work / target.name).write_text(as_markdown(loaded, add), encoding="utf-8")


def _turn_blocks(record: TurnRecord, place: Place) -> list[str]:
    turn = record.turn
    blocks = [f"## {_SPEAKERS[turn.role]}"]
    blocks += [_picture_block(picture, place) for picture in turn.attachments]
    blocks += _quoted("Reasoning", turn.reasoning)
    if turn.text:
        blocks.append(safe_text(turn.text))
    return blocks + [f"*({text})*" for text in (_mark(turn), _line(record.note)) if text]


def _quoted(heading: str, text: str) -> list[str]:
    """A quotation of safe text; nothing where there is no text."""
    block = quotation(heading, safe_text(text.strip()))
    return [block] if block else []


def _picture_block(picture: Attachment, place: Place) -> str:
    name = _line(picture.name).replace("[", "(").replace("]", ")") or "picture"
    if not picture.data:
        return f"*{name}: this picture is missing*"
    return f"![{name}](<{safe_line(place(picture), limit=4096)}>)"


def _line(text: str) -> str:
    return safe_line(" ".join(text.split()))


def _mark(turn: Turn) -> str:
    if turn.role != "assistant":
        return ""
    return "interrupted" if turn.finish is None else _MARKS.get(turn.finish, "")


def _file_name(record: ConversationRecord) -> str:
    words = re.sub(r"[^\w\- ]+", " ", record.title)
    return "-".join(words.split())[:_NAME_LENGTH].strip("-.") or f"conversation-{record.id}"


@contextmanager
def _placed(folder: Path, stem: str, suffix: str) -> Iterator[tuple[Path, Path]]:
    """A free name in `folder`, and a hidden folder to write the file of that name in, with its
    pictures; it is put in its place at the end. What a killed process left goes. Raises OSError."""
    work = folder / _UNFINISHED
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            lock(handle)
        shutil.rmtree(work, ignore_errors=True)
        target = _free(folder, stem, suffix)
        work.mkdir()
        yield target, work
        alone = len(list(work.iterdir())) == 1
        if not alone:
            work = work.rename(_pictures_of(target))
        (work / target.name).rename(target)
        if alone:
            work.rmdir()
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def _free(folder: Path, stem: str, suffix: str) -> Path:
    """A name that neither a file nor a folder of pictures has. A folder that still holds the text
    is of an export that was killed, and goes."""
    target, count = folder / f"{stem}{suffix}", 1
    while target.exists() or _pictures_of(target).exists():
        if not target.exists() and (_pictures_of(target) / target.name).exists():
            shutil.rmtree(_pictures_of(target))
            break
        count += 1
        target = folder / f"{stem}-{count}{suffix}"
    return target


def _pictures_of(target: Path) -> Path:
    return target.with_name(f"{target.stem}-pictures")


def _unwritable(target: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The chat cannot be written to {target}: {error.strerror}. Choose another place."
    )


def _turn_value(record: TurnRecord, place: Place) -> dict[str, Any]:
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
        "tokenizer": record.tokenizer,
        "created": record.created,
        "pictures": [
            {name: getattr(picture, name) for name in _SHOWN} | {"file": place(picture)}
            for picture in turn.attachments
        ],
        "settings": None if record.settings is None else asdict(record.settings),
        "usage": None if record.usage is None else asdict(record.usage),
    }
