"""Full-text search by three-letter pieces, which needs no word borders and so reads Chinese.

The index is filled behind the writers: `indexed` says which turns it has seen as they are.
"""

from __future__ import annotations

SQL = (
    "CREATE VIRTUAL TABLE turn_search USING fts5 (text, tokenize = 'trigram')",
    "ALTER TABLE turns ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX turns_to_index ON turns (key) WHERE indexed = 0",
)
