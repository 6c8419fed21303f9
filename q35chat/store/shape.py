"""Whether the tables of a file are those that its schema number promises.

Knows the schema's history; decides nothing about the file. The search index is looked at apart: it
can be made again from the turns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache

from q35chat.store.checking import damage
from q35chat.store.migrations import SCHEMA, STEPS, m0002_search

_SEARCH = m0002_search.SQL[0]
_HAS_SEARCH = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'turn_search'"
Columns = frozenset[tuple[str, str]]


def check_tables(connection: sqlite3.Connection, version: int) -> None:
    """Raises sqlite3.DatabaseError that is damage, where the columns of our tables are not those
    of schema `version`, or there is no such schema. Columns and tables of others do not matter."""
    known = _columns_of(SCHEMA)
    found = frozenset(_columns(connection)) & known
    if version not in range(SCHEMA + 1) or found != _columns_of(version):
        raise damage(f"its tables are not those of schema {version}")


def lacks_search(connection: sqlite3.Connection, version: int) -> bool:
    """Whether a file of schema `version` should have a search index and has none."""
    return version == SCHEMA and connection.execute(_HAS_SEARCH).fetchone() is None


def begin_search(connection: sqlite3.Connection) -> None:
    """Make an empty search index; every turn waits to be put into it. Raises sqlite3.Error."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SEARCH)
        connection.execute("UPDATE turns SET indexed = 0")


@cache
def _columns_of(version: int) -> Columns:
    connection = sqlite3.connect(":memory:")
    try:
        for step in STEPS[:version]:
            for statement in step:
                if statement != _SEARCH:
                    connection.execute(statement)
        return frozenset(_columns(connection))
    finally:
        connection.close()


def _columns(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    rows = connection.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name NOT LIKE 'turn_search%'"
    )
    yield from rows
