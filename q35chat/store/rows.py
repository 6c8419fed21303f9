"""Conversations and turns to rows and back, inside a transaction of the caller.

A row that is damaged is read as well as it can be, and a `Damage` hears of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.store.codec import (
    count_of,
    pack_ids,
    pack_steps,
    settings_from_text,
    settings_to_text,
    text_of,
    time_of,
    unpack_ids,
    usage_from_columns,
    usage_to_text,
)
from q35chat.store.damage import Damage
from q35chat.store.mending import finish_of, in_order, is_hash, role_of
from q35chat.store.pictures import PictureFiles

_CONVERSATION = "id, title, created, updated, head, settings, revision, summary"
_TURN = (
    "id, parent, role, text, reasoning, token_ids, finish, note, left_out, model, tokenizer, "
    "settings, usage, step_times, created"
)
_UPSERT = f"""
    INSERT INTO turns (conversation, {_TURN}) VALUES ({", ".join("?" * 16)})
    ON CONFLICT (id) DO UPDATE SET
        text = excluded.text, reasoning = excluded.reasoning, token_ids = excluded.token_ids,
        finish = excluded.finish, note = excluded.note, left_out = excluded.left_out,
        model = excluded.model, tokenizer = excluded.tokenizer, settings = excluded.settings,
        usage = excluded.usage, step_times = excluded.step_times, indexed = 0
    RETURNING key
"""  # noqa: S608 - the columns are the constants above


def insert_conversation(connection: sqlite3.Connection, record: ConversationRecord) -> None:
    """Add a conversation."""
    connection.execute(
        f"INSERT INTO conversations ({_CONVERSATION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            record.id,
            record.title,
            record.created,
            record.updated,
            record.head,
            settings_to_text(record.settings),
            record.revision,
            record.summary,
        ),
    )


def update_conversation(
    connection: sqlite3.Connection,
    record: ConversationRecord,
    since: ConversationRecord | None = None,
) -> int | None:
    """Write everything but title and summary, of head and settings only what changed `since`; the
    new revision, or None when it is gone."""
    stored = None if since is None else read_conversation(connection, record.id, Damage())
    same = False
    if since is not None and stored is not None:
        record = record.on(stored, since)
        same = record.settings == stored.settings  # and then also what is damaged of them stays
    settings = None if same else settings_to_text(record.settings)
    row = connection.execute(
        "UPDATE conversations SET updated = ?, head = ?, settings = coalesce(?, settings), "
        "revision = revision + 1 WHERE id = ? RETURNING revision",
        (record.updated, record.head, settings, record.id),
    ).fetchone()
    return None if row is None else int(row[0])


def read_conversation(
    connection: sqlite3.Connection, session: str, damage: Damage
) -> ConversationRecord | None:
    """The conversation with this id."""
    row = connection.execute(
        f"SELECT {_CONVERSATION} FROM conversations WHERE id = ?",  # noqa: S608
        (session,),
    ).fetchone()
    return None if row is None else _conversation(row, damage)


def write_turn(
    connection: sqlite3.Connection, session: str, record: TurnRecord, files: PictureFiles
) -> None:
    """Add a turn with its pictures, or write a known one as it is now."""
    turn = record.turn
    known = connection.execute("SELECT 1 FROM turns WHERE id = ?", (record.id,)).fetchone()
    (key,) = connection.execute(
        _UPSERT,
        (
            session,
            record.id,
            record.parent,
            turn.role,
            turn.text,
            turn.reasoning,
            pack_ids(turn.token_ids),
            turn.finish,
            record.note,
            record.left_out,
            record.model,
            record.tokenizer,
            settings_to_text(record.settings),
            usage_to_text(record.usage),
            pack_steps(record.usage),
            record.created,
        ),
    ).fetchone()
    if known is None:
        _write_pictures(connection, key, turn.attachments, files)


def read_turns(
    connection: sqlite3.Connection, session: str, files: PictureFiles, damage: Damage
) -> tuple[TurnRecord, ...]:
    """All turns of a conversation, parents before children, branches oldest first.

    A picture whose file is gone or altered has empty `data`. A turn whose parent is not among those
    before it follows the last of another role.
    """
    pictures = _read_pictures(connection, session, files, damage)
    rows = connection.execute(
        f"SELECT key, {_TURN} FROM turns WHERE conversation = ? ORDER BY key",  # noqa: S608
        (session,),
    )
    return in_order([_turn(row[1:], pictures.get(row[0], ()), damage) for row in rows], damage)


def shown_pictures(connection: sqlite3.Connection, session: str) -> tuple[str, ...]:
    """The hashes of all pictures that a conversation shows; of nothing that is no hash."""
    rows = connection.execute(
        "SELECT DISTINCT sha256 FROM turn_pictures JOIN turns ON turns.key = turn "
        "WHERE conversation = ?",
        (session,),
    )
    return tuple(sha256 for (sha256,) in rows if is_hash(sha256))


def unshown(connection: sqlite3.Connection, pictures: Sequence[str]) -> tuple[str, ...]:
    """Those of `pictures`, given by their hashes, that no turn shows."""
    wanted = "SELECT 1 FROM turn_pictures WHERE sha256 = ?"
    return tuple(one for one in pictures if not connection.execute(wanted, (one,)).fetchone())


def _write_pictures(
    connection: sqlite3.Connection, key: int, pictures: Sequence[Attachment], files: PictureFiles
) -> None:
    for position, picture in enumerate(pictures):
        files.keep(picture.sha256, picture.data)
        connection.execute(
            "INSERT INTO turn_pictures (turn, position, sha256, name, width, height, tokens) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                position,
                picture.sha256,
                picture.name,
                picture.width,
                picture.height,
                picture.tokens,
            ),
        )


def _read_pictures(
    connection: sqlite3.Connection, session: str, files: PictureFiles, damage: Damage
) -> dict[int, tuple[Attachment, ...]]:
    rows = connection.execute(
        "SELECT turn, sha256, name, width, height, tokens FROM turn_pictures "
        "JOIN turns ON turns.key = turn WHERE conversation = ? ORDER BY turn, position",
        (session,),
    )
    data: dict[str, bytes] = {}
    found: dict[int, tuple[Attachment, ...]] = {}
    for key, stored, name, *sizes in rows:
        sha256 = text_of(stored, damage, "pictures")
        if sha256 not in data:
            data[sha256] = _picture(sha256, files, damage)
        width, height, tokens = (count_of(size, damage, "pictures") for size in sizes)
        named = text_of(name, damage, "pictures")
        picture = Attachment(sha256, named, data[sha256], width, height, tokens)
        found[key] = (*found.get(key, ()), picture)
    return found


def _picture(sha256: str, files: PictureFiles, damage: Damage) -> bytes:
    if is_hash(sha256):
        return files.read(sha256) or b""
    damage.of("pictures")
    return b""


def _conversation(row: tuple[Any, ...], damage: Damage) -> ConversationRecord:
    ident, title, created, updated, head, settings, revision, summary = row
    return ConversationRecord(
        id=text_of(ident, damage),
        title=text_of(title, damage, "title"),
        created=time_of(created, damage),
        updated=time_of(updated, damage),
        head=None if head is None else text_of(head, damage, "order of turns"),
        settings=settings_from_text(settings, damage) or ChatSettings(),
        revision=revision if isinstance(revision, int) else 0,
        summary=text_of(summary, damage, "summary"),
    )


def _turn(row: tuple[Any, ...], pictures: tuple[Attachment, ...], damage: Damage) -> TurnRecord:
    (ident, parent, role, text, reasoning, ids, finish, note, left_out, *rest) = row
    (model, tokenizer, settings, usage, steps, created) = rest
    turn = Turn(
        role=role_of(role, damage, answered=bool(reasoning or ids or finish)),
        text=text_of(text, damage),
        attachments=pictures,
        reasoning=text_of(reasoning, damage),
        token_ids=unpack_ids(ids, damage),
        finish=finish_of(finish, damage),
    )
    return TurnRecord(
        id=text_of(ident, damage, "order of turns"),
        parent=None if parent is None else text_of(parent, damage, "order of turns"),
        turn=turn,
        created=time_of(created, damage),
        model=text_of(model, damage),
        tokenizer=text_of(tokenizer, damage),
        settings=settings_from_text(settings, damage),
        usage=usage_from_columns(usage, steps, damage),
        note=text_of(note, damage),
        left_out=left_out == 1,
    )
