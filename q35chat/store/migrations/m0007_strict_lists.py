"""The same tables made again with what lists need, so that these columns take only right values,
and so that a table made again keeps them.
"""

from __future__ import annotations

from q35chat.store.migrations.m0004_strict import INDEXES, TABLES, moved

_FLAG = "INTEGER NOT NULL DEFAULT 0 CHECK ({0} IN (0, 1))"
_OF_LISTS = {"pinned": _FLAG, "tags": "TEXT NOT NULL DEFAULT ''", "trashed": _FLAG}


def _of_now(table: str, columns: dict[str, str]) -> dict[str, str]:
    kept = {name: what for name, what in columns.items() if name != "indexed"}
    return kept | (_OF_LISTS if table == "conversations" else {})


SQL = (
    *(
        statement
        for table, columns in TABLES.items()
        for statement in moved(table, _of_now(table, columns))
    ),
    *INDEXES,
)
