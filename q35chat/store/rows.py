"""Conversations and turns to rows and back, inside a transaction of the caller.

A row that is damaged is read as well as it can be, and a `Losses` hears of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.values import Attachment, ChatSettings, Role, Turn
from q35chat.store.columns import (
    REASONS,
    ROLES,
    Losses,
    count_of,
    is_hash,
    pack_ids,
    pack_steps,
    settings_from_text,
    settings_to_text,
    text_of,
    time_of,
    unpack_ids,
    usage_from_columns,
    usage_to_text,
    word_of,
)
from q35chat.store.folder import PictureFiles

Row = dict[str, Any]
_FIXED = ("conversation", "id", "parent", "role", "created")
"""Columns of a turn that stay as they were written first."""


def insert_conversation(connection: sqlite3.Connection, record: ConversationRecord) -> None:
    """Add a conversation."""
    row = _row(record) | {"settings": settings_to_text(record.settings)}
    connection.execute(_insertion("conversations", row), row)


def update_conversation(
    connection: sqlite3.Connection,
    record: ConversationRecord,
    since: ConversationRecord | None = None,
) -> int | None:
    """Write everything but title and summary, of head and settings only what changed `since`; the
    new revision, or None when it is gone."""
    stored = None if since is None else read_conversation(connection, record.id, Losses())
    same = False
    if since is not None and stored is not None:
        record = record.on(stored, since)
        same = record.settings == stored.settings  # and then also what is damaged of them stays
    settings = "" if same else "settings = :settings, "
    row = connection.execute(
        f"UPDATE conversations SET {settings}updated = :updated, head = :head, "  # noqa: S608
        "revision = max(revision, 0) + 1 WHERE id = :id RETURNING revision",
        _row(record) | {"settings": settings_to_text(record.settings)},
    ).fetchone()
    return None if row is None else int(row[0])


def read_conversation(
    connection: sqlite3.Connection, conversation_id: str, damage: Losses
) -> ConversationRecord | None:
    """The conversation with this id."""
    for row in _rows(connection, "SELECT * FROM conversations WHERE id = ?", conversation_id):
        head = row["head"]
        return ConversationRecord(
            id=text_of(row["id"], damage),
            title=text_of(row["title"], damage, "title"),
            created=time_of(row["created"], damage),
            updated=time_of(row["updated"], damage),
            head=None if head is None else text_of(head, damage, "order of turns"),
            settings=settings_from_text(row["settings"], damage) or ChatSettings(),
            revision=count_of(row["revision"], Losses(), "revision"),
            summary=text_of(row["summary"], damage, "summary"),
        )
    return None


def write_turn(
    connection: sqlite3.Connection, conversation_id: str, record: TurnRecord, files: PictureFiles
) -> None:
    """Add a turn with its pictures, or write a known one as it is now."""
    turn = record.turn
    row = _row(turn, "attachments", "calls") | _row(record, "turn")
    row |= {
        "conversation": conversation_id,
        "token_ids": pack_ids(turn.token_ids),
        "settings": settings_to_text(record.settings),
        "usage": usage_to_text(record.usage),
        "step_times": pack_steps(record.usage),
    }
    known = connection.execute("SELECT 1 FROM turns WHERE id = ?", (record.id,)).fetchone()
    changes = ", ".join(f"{name} = excluded.{name}" for name in row if name not in _FIXED)
    (key,) = connection.execute(
        f"{_insertion('turns', row)} ON CONFLICT (id) DO UPDATE SET {changes} RETURNING key", row
    ).fetchone()
    for position, picture in enumerate(turn.attachments if known is None else ()):
        files.keep(picture.sha256, picture.data)
        shown = _row(picture, "data") | {"turn": key, "position": position}
        connection.execute(_insertion("turn_pictures", shown), shown)


def read_turns(
    connection: sqlite3.Connection, conversation_id: str, files: PictureFiles, damage: Losses
) -> tuple[TurnRecord, ...]:
    """All turns of a conversation, parents before children, branches oldest first.

    A picture whose file is gone or altered has empty `data`. A turn whose parent is not among those
    before it follows the last of another role.
    """
    pictures = _read_pictures(connection, conversation_id, files, damage)
    query = "SELECT * FROM turns WHERE conversation = ? ORDER BY key"
    turns = [
        _turn(row, pictures.get(row["key"], ()), damage)
        for row in _rows(connection, query, conversation_id)
    ]
    return _in_order(turns, damage)


def with_head(
    record: ConversationRecord, turns: Sequence[TurnRecord], damage: Losses
) -> ConversationRecord:
    """The conversation; where the turn that it is read to is not there, to the one written last."""
    if record.head is None or any(turn.id == record.head for turn in turns):
        return record
    damage.of("order of turns")
    return replace(record, head=turns[-1].id if turns else None)


def shown_pictures(connection: sqlite3.Connection, conversation_id: str) -> tuple[str, ...]:
    """The hashes of all pictures that a conversation shows; of nothing that is no hash."""
    rows = connection.execute(
        "SELECT DISTINCT sha256 FROM turn_pictures JOIN turns ON turns.key = turn "
        "WHERE conversation = ?",
        (conversation_id,),
    )
    return tuple(sha256 for (sha256,) in rows if is_hash(sha256))


def unshown(connection: sqlite3.Connection, pictures: Sequence[str]) -> tuple[str, ...]:
    """Those of `pictures`, given by their hashes, that no turn shows."""
    wanted = "SELECT 1 FROM turn_pictures WHERE sha256 = ?"
    return tuple(one for one in pictures if not connection.execute(wanted, (one,)).fetchone())


def _row(value: ConversationRecord | TurnRecord | Turn | Attachment, *but: str) -> Row:
    """The fields of a value, which columns are named after, all `but` some. Calls of tools are of
    who asks the server, who keeps them."""
    return {one.name: getattr(value, one.name) for one in fields(value) if one.name not in but}


def _insertion(table: str, row: Row) -> str:
    return (
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"  # noqa: S608
    )


def _rows(connection: sqlite3.Connection, query: str, conversation_id: str) -> list[Row]:
    cursor = connection.execute(query, (conversation_id,))
    names = [name for name, *_ in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _read_pictures(
    connection: sqlite3.Connection, conversation_id: str, files: PictureFiles, damage: Losses
) -> dict[int, tuple[Attachment, ...]]:
    query = (
        "SELECT turn_pictures.* FROM turn_pictures JOIN turns ON turns.key = turn "
        "WHERE conversation = ? ORDER BY turn, position"
    )
    data: dict[str, bytes] = {}
    found: dict[int, tuple[Attachment, ...]] = {}
    for row in _rows(connection, query, conversation_id):
        sha256, name = (text_of(row[part], damage, "pictures") for part in ("sha256", "name"))
        sizes = (count_of(row[part], damage, "pictures") for part in ("width", "height", "tokens"))
        if not is_hash(sha256):
            damage.of("pictures")
            data[sha256] = b""
        elif sha256 not in data:
            data[sha256] = files.read(sha256) or b""
        picture = Attachment(sha256, name, data[sha256], *sizes)
        found[row["turn"]] = (*found.get(row["turn"], ()), picture)
    return found


def _turn(row: Row, pictures: tuple[Attachment, ...], damage: Losses) -> TurnRecord:
    parent, finish = row["parent"], row["finish"]
    speaker: Role = "assistant" if row["reasoning"] or row["token_ids"] or finish else "user"
    turn = Turn(
        role=word_of(row["role"], ROLES, damage, "speakers", speaker),
        text=text_of(row["text"], damage),
        attachments=pictures,
        reasoning=text_of(row["reasoning"], damage),
        token_ids=unpack_ids(row["token_ids"], damage),
        finish=None if finish is None else word_of(finish, REASONS, damage, "endings", "stop"),
    )
    return TurnRecord(
        id=text_of(row["id"], damage, "order of turns"),
        parent=None if parent is None else text_of(parent, damage, "order of turns"),
        turn=turn,
        created=time_of(row["created"], damage),
        model=text_of(row["model"], damage),
        tokenizer=text_of(row["tokenizer"], damage),
        settings=settings_from_text(row["settings"], damage),
        usage=usage_from_columns(row["usage"], row["step_times"], damage),
        note=text_of(row["note"], damage),
        left_out=row["left_out"] == 1,
    )


def _in_order(turns: Sequence[TurnRecord], damage: Losses) -> tuple[TurnRecord, ...]:
    """The turns, each with a parent that stands before it or with none.

    One that names another parent follows the last turn before it that somebody else said.
    """
    found: dict[str, TurnRecord] = {}
    last: dict[Role, str] = {}
    for turn in turns:
        if turn.parent is not None and turn.parent not in found:
            damage.of("order of turns")
            others = (ident for role, ident in reversed(last.items()) if role != turn.turn.role)
            turn = replace(turn, parent=next(others, None))  # noqa: PLW2901
        found[turn.id] = turn
        last.pop(turn.turn.role, None)
        last[turn.turn.role] = turn.id
    return tuple(found.values())
