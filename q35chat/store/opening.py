"""Open the conversation file: create it, bring its schema up to date, or set it aside.

A file that is damaged, or whose tables are not those of its schema, is renamed and never deleted;
one that a newer q35chat wrote is refused.
It is checked before it is used where that is quick, or where there is cause: it was not closed, it
is to be rewritten, or damage was seen in it. Tables in which a value has not the type of its column
are made again. Processes that open at the same time take turns.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from functools import cache
from pathlib import Path

from q35chat.chat.history.records import StoreWriteError
from q35chat.errors import StoreError
from q35chat.store.checking import check, damage, damage_told, is_damage, is_marked, unmark
from q35chat.store.database import Database, connect
from q35chat.store.folder import exclusive
from q35chat.store.migrations import SCHEMA, STEPS, UNTYPED
from q35chat.text import now

NAME = "conversations.db"
OLDEST_SQLITE = (3, 37)  # strict tables
AT_ONCE = 4 << 20
"""Bytes of a file that is always checked before it is used."""


def open_database(folder: Path) -> tuple[Database, str]:
    """The database in `folder`, and a message for the user if a damaged one was set aside.

    Raises StoreError: a newer schema, an old SQLite; StoreWriteError: no access, no space.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"This Python has SQLite {sqlite3.sqlite_version}; chats need 3.37. "
            "Use a newer Python build."
        )
    path = folder / NAME
    with exclusive(folder / "opening.lock"):
        try:
            with damage_told():
                return _open(path), ""
        except sqlite3.Error as error:
            if not (is_damage(error) or isinstance(error, sqlite3.IntegrityError)):
                raise StoreWriteError(
                    f"The chat file {path} cannot be opened ({error}). "
                    "Check its permissions and free space."
                ) from error
        aside = _set_aside(path)
        message = (
            f"The chat file was damaged: it is kept as {aside} and a new one was begun. "
            f"`sqlite3 {aside} .recover` may read it."
        )
        return _open(path), message


def open_to_read(path: Path, refused: StoreWriteError) -> Database:
    """The database as it stands, where nothing can be written. Raises `refused`, which says why,
    where it cannot be read either."""
    log = path.with_name(f"{path.name}-wal")
    try:
        uri = path.absolute().as_uri()
        modes = [":memory:"] if path.stat().st_size == 0 else [f"{uri}?mode=ro"]
        if not (log.exists() and log.stat().st_size):  # nothing stands beside the file
            modes += [f"{uri}?mode=ro&immutable=1"]
    except OSError:
        raise refused from None
    for mode in modes:
        with contextlib.suppress(sqlite3.Error), damage_told():
            connection = connect(mode, ())
            if mode == ":memory:":
                _migrate(connection, 0)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == SCHEMA:
                return Database(path, connection, refused=refused)
            connection.close()
    raise refused


def _open(path: Path) -> Database:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreWriteError(
            f"The chat file {path} cannot be opened: {error.strerror}. "
            "Check its owner and permissions."
        ) from error
    in_use = path.with_name(f"{path.name}-wal").exists()  # left so, or by another process
    quick, marked = in_use or path.stat().st_size <= AT_ONCE, is_marked(path)
    connection = connect(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        checked = quick or marked or version != SCHEMA
        typed = not checked or check(connection, thorough=marked)
        if checked:
            unmark(path)
        if version > SCHEMA:
            raise StoreError(
                f"The chat file {path} has schema {version}, written by a newer q35chat; "
                f"this one knows {SCHEMA}. Update q35chat."
            )
        _check_tables(connection, version)
        _migrate(connection, version if typed else min(version, UNTYPED))
    except BaseException:
        connection.close()
        raise
    return Database(path, connection, checked=checked)


def _check_tables(connection: sqlite3.Connection, version: int) -> None:
    """Raises sqlite3.DatabaseError that is damage, where the columns of our tables are not those
    of schema `version`, or there is no such schema. Columns and tables of others do not matter."""
    own = _columns_of(version)
    if (
        version not in range(SCHEMA + 1)
        or _columns(connection) & (own | _columns_of(SCHEMA)) != own
    ):
        raise damage(f"its tables are not those of schema {version}")


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    """Take the steps after `version`. Raises sqlite3.IntegrityError for rows that fit no table."""
    if version == SCHEMA:
        return
    connection.execute("PRAGMA foreign_keys = off")
    connection.execute("PRAGMA ignore_check_constraints = on")
    for number in range(version, SCHEMA):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in STEPS[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
    connection.execute("PRAGMA ignore_check_constraints = off")
    connection.execute("PRAGMA foreign_keys = on")


def _set_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now()))
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


@cache
def _columns_of(version: int) -> frozenset[tuple[str, str]]:
    connection = sqlite3.connect(":memory:")
    try:
        for step in STEPS[:version]:
            for statement in step:
                connection.execute(statement)
        return _columns(connection)
    finally:
        connection.close()


def _columns(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    rows = connection.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'turn_search%'"
    )
    return frozenset(rows)
