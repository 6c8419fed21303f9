"""Open the conversation file: create it, bring its schema up to date, or set it aside.

A file that is damaged is renamed and never deleted; one that a newer q35chat wrote is refused.
Processes that open at the same time take turns.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from q35chat.errors import StoreError
from q35chat.store.database import Database, connect, is_damage
from q35chat.store.locks import exclusive
from q35chat.store.migrations import SCHEMA, STEPS

NAME = "conversations.db"
OLDEST_SQLITE = (3, 35)  # the trigram tokeniser, RETURNING


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
            return Database(path, _open(path)), ""
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
        return Database(path, _open(path)), message


def _open(path: Path) -> sqlite3.Connection:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(
            f"The chat file {path} cannot be opened: {error.strerror}. "
            "Check its owner and permissions."
        ) from error
    connection = connect(path)
    try:
        _check(connection)
        _migrate(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        error = sqlite3.DatabaseError(verdict)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise StoreError(
            f"The chat file {path} has schema {version}, written by a newer q35chat; "
            f"this one knows {SCHEMA}. Update q35chat."
        )
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
