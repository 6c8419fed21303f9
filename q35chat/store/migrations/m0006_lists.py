"""What a list of chats shows and is sorted by: pinned chats, tags, and chats on their way out."""

from __future__ import annotations

SQL = (
    "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN tags TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN trashed INTEGER NOT NULL DEFAULT 0",
)
