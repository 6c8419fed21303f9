"""Tables that take only values of the right type and range.

Rows move into them as they are: what has another type than its column is cast to it, a number that
is none becomes -1, which is out of range, and what is out of range stays. So nothing is lost, and
whoever reads such a row says so. Checks and foreign keys are off meanwhile.
"""

from __future__ import annotations

_TIME = "REAL NOT NULL CHECK ({0} BETWEEN 0 AND 253402300799)"
_COUNT = "INTEGER NOT NULL CHECK ({0} >= 0)"
_FLAG = "INTEGER NOT NULL DEFAULT 0 CHECK ({0} IN (0, 1))"
_OBJECT = "CHECK (iif(json_valid({0}), json_type({0}) = 'object', {0} IS NULL))"
TABLES: dict[str, dict[str, str]] = {
    "conversations": {
        "id": "TEXT PRIMARY KEY NOT NULL",
        "title": "TEXT NOT NULL",
        "created": _TIME,
        "updated": _TIME,
        "head": "TEXT",
        "settings": f"TEXT NOT NULL {_OBJECT}",
        "revision": "INTEGER NOT NULL DEFAULT 0 CHECK ({0} >= 0)",
        "summary": "TEXT NOT NULL DEFAULT ''",
    },
    "turns": {
        "key": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "id": "TEXT NOT NULL UNIQUE",
        "conversation": "TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE",
        "parent": "TEXT REFERENCES turns (id) DEFERRABLE INITIALLY DEFERRED",
        "role": "TEXT NOT NULL CHECK ({0} IN ('system', 'user', 'assistant'))",
        "text": "TEXT NOT NULL",
        "reasoning": "TEXT NOT NULL",
        "token_ids": "BLOB NOT NULL CHECK (length({0}) % 4 = 0)",
        "finish": "TEXT CHECK ({0} IN ('stop', 'length', 'capacity', 'cancelled', 'loop'))",
        "note": "TEXT NOT NULL",
        "left_out": _FLAG,
        "model": "TEXT NOT NULL",
        "tokenizer": "TEXT NOT NULL",
        "settings": f"TEXT {_OBJECT}",
        "usage": f"TEXT {_OBJECT}",
        "step_times": "BLOB NOT NULL CHECK (length({0}) % 16 = 0)",
        "created": _TIME,
        "indexed": _FLAG,
    },
    "turn_pictures": {
        "turn": "INTEGER NOT NULL REFERENCES turns (key) ON DELETE CASCADE",
        "position": _COUNT,
        "sha256": "TEXT NOT NULL CHECK (length({0}) = 64 AND {0} NOT GLOB '*[^0-9a-f]*')",
        "name": "TEXT NOT NULL",
        "width": _COUNT,
        "height": _COUNT,
        "tokens": _COUNT,
    },
}
_ENDS = {
    "conversations": ") STRICT, WITHOUT ROWID",
    "turns": ") STRICT",
    "turn_pictures": ", PRIMARY KEY (turn, position)) STRICT, WITHOUT ROWID",
}
_CASTS = {
    "TEXT": "CAST({0} AS TEXT)",
    "BLOB": "CAST({0} AS BLOB)",
    "REAL": "iif(typeof({0}) IN ('real', 'integer'), {0}, -1)",
    "INTEGER": "iif(typeof({0}) = 'integer', {0}, -1)",
}


def moved(table: str, columns: dict[str, str]) -> tuple[str, ...]:
    """Statements that put the rows of `table` into a strict one of the same name."""
    made = ", ".join(f"{name} {what.format(name)}" for name, what in columns.items())
    cast = ", ".join(_CASTS[what.split()[0]].format(name) for name, what in columns.items())
    return (
        f"CREATE TABLE strict_{table} ({made}{_ENDS[table]}",
        f"INSERT INTO strict_{table} ({', '.join(columns)}) SELECT {cast} FROM {table}",  # noqa: S608
        f"DROP TABLE {table}",
        f"ALTER TABLE strict_{table} RENAME TO {table}",
    )


INDEXES = (
    "CREATE INDEX turns_of_conversation ON turns (conversation, key)",
    "CREATE INDEX turns_of_parent ON turns (parent)",
    "CREATE INDEX turn_pictures_by_hash ON turn_pictures (sha256)",
    "CREATE INDEX conversations_by_time ON conversations (updated)",
)
SQL = (
    *(statement for table in TABLES.items() for statement in moved(*table)),
    *INDEXES,
    "CREATE INDEX turns_to_index ON turns (key) WHERE indexed = 0",
)
