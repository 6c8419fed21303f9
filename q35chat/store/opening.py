"""Open the conversation file: create it, bring its schema up to date, or set it aside.

A file that is damaged, or whose tables are not those of its schema, is renamed and never deleted;
one that a newer q35chat wrote is refused, and a search index that is missing is made again.
It is checked before it is used where that is quick, or where there is cause: it was not closed, it
is to be rewritten, or damage was seen in it. Processes that open at the same time take turns.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from q35chat.errors import StoreError
from q35chat.store.checking import check, is_damage, is_marked, unmark
from q35chat.store.database import Database, connect
from q35chat.store.locks import exclusive
from q35chat.store.migrations import SCHEMA, STEPS
from q35chat.store.shape import begin_search, check_tables, lacks_search

NAME = "conversations.db"
OLDEST_SQLITE = (3, 35)  # the trigram tokeniser, RETURNING
AT_ONCE = 4 << 20
"""Bytes of a file that is always checked before it is used."""


def open_database(folder: Path) -> tuple[Database, str]:
    """The database in `folder`, and a message for the user if a damaged one was set aside.

    Raises StoreError: a newer schema, an old SQLite, a file that cannot be opened.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"This Python has SQLite {sqlite3.sqlite_version}; chats need 3.35. "
            "Use a newer Python build."
        )
    path = folder / NAME
    with exclusive(folder / "opening.lock"):
        try:
            return _open(path), ""
        except sqlite3.Error as error:
            if not is_damage(error):
                raise StoreError(
                    f"The chat file {path} cannot be opened ({error}). "
                    "Check its permissions and free space."
                ) from error
        aside = _set_aside(path)
        message = (
            f"The chat file was damaged: it is kept as {aside} and a new one was begun. "
            f"`sqlite3 {aside} .recover` may read it."
        )
        return _open(path), message


def _open(path: Path) -> Database:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(
            f"The chat file {path} cannot be opened: {error.strerror}. "
            "Check its owner and permissions."
        ) from error
    quick, marked = _is_small(path) or _was_not_closed(path), is_marked(path)
    connection = connect(path)
    try:
        version = _version(connection)
        lacking = lacks_search(connection, version)
        checked = quick or marked or lacking or version != SCHEMA
        if checked:
            check(connection, thorough=marked)
            unmark(path)
        _migrate(path, connection, version)
        if lacking:
            begin_search(connection)
    except BaseException:
        connection.close()
        raise
    return Database(path, connection, checked=checked)


def _is_small(path: Path) -> bool:
    return path.stat().st_size <= AT_ONCE


def _was_not_closed(path: Path) -> bool:
    """Whether it was left in the middle of its use, or another process has it open."""
    return path.with_name(f"{path.name}-wal").exists()


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(path: Path, connection: sqlite3.Connection, version: int) -> None:
    if version > SCHEMA:
        raise StoreError(
            f"The chat file {path} has schema {version}, written by a newer q35chat; "
            f"this one knows {SCHEMA}. Update q35chat."
        )
    check_tables(connection, version)
    for number in range(version, SCHEMA):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in STEPS[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{count}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
