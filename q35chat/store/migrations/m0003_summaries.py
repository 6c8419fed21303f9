"""What was said before, for a conversation that goes on from the summary of another one."""

from __future__ import annotations

SQL = ("ALTER TABLE conversations ADD COLUMN summary TEXT NOT NULL DEFAULT ''",)
