"""No search index: what was deleted stayed readable in it. Texts are read when they are searched.

The tables are made again without the column that told what the index had seen, so that no page of
the former ones is left.
"""

from __future__ import annotations

from q35chat.store.migrations.m0004_strict import INDEXES, TABLES, moved


def _without_index(columns: dict[str, str]) -> dict[str, str]:
    return {name: what for name, what in columns.items() if name != "indexed"}


SQL = (
    "DROP TABLE IF EXISTS turn_search",
    *(
        statement
        for table, columns in TABLES.items()
        for statement in moved(table, _without_index(columns))
    ),
    *INDEXES,
)
