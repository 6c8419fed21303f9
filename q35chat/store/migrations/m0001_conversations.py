"""Conversations, their turns as a tree, and which pictures each turn carries."""

from __future__ import annotations

SQL = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        head TEXT,
        settings TEXT NOT NULL,
        revision INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE turns (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        parent TEXT REFERENCES turns (id) DEFERRABLE INITIALLY DEFERRED,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        token_ids BLOB NOT NULL,
        finish TEXT,
        note TEXT NOT NULL,
        left_out INTEGER NOT NULL,
        model TEXT NOT NULL,
        tokenizer TEXT NOT NULL,
        settings TEXT,
        usage TEXT,
        step_times BLOB NOT NULL,
        created REAL NOT NULL
    )
    """,
    "CREATE INDEX turns_of_conversation ON turns (conversation, key)",
    "CREATE INDEX turns_of_parent ON turns (parent)",
    """
    CREATE TABLE turn_pictures (
        turn INTEGER NOT NULL REFERENCES turns (key) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        sha256 TEXT NOT NULL,
        name TEXT NOT NULL,
        width INTEGER NOT NULL,
        height INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (turn, position)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX turn_pictures_by_hash ON turn_pictures (sha256)",
    "CREATE INDEX conversations_by_time ON conversations (updated)",
)
