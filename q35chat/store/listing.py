"""The list of chats: which there are, the latest first, and how much was said in them.

A chat whose time is damaged comes last, whatever stands there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container

from q35chat.chat.service import SessionSummary
from q35chat.store.codec import LATEST_TIME, count_of, text_of, time_of
from q35chat.store.damage import Damage

_QUESTION = "t.role NOT IN ('assistant', 'system')"
_SUMMARIES = f"""
    WITH RECURSIVE branch (conversation, key, parent, question) AS (
        SELECT t.conversation, t.key, t.parent, {_QUESTION}
        FROM conversations c JOIN turns t ON t.id = c.head AND t.conversation = c.id
        UNION
        SELECT t.conversation, t.key, t.parent, {_QUESTION}
        FROM branch b JOIN turns t ON t.id = b.parent AND t.conversation = b.conversation
    ),
    said (conversation, questions) AS (
        SELECT conversation, sum(question) FROM branch GROUP BY conversation
    )
    SELECT c.id, c.title, c.updated, coalesce(
        nullif(s.questions, 0),
        (SELECT count(*) FROM turns t WHERE t.conversation = c.id AND {_QUESTION})
    )
    FROM conversations c LEFT JOIN said s ON s.conversation = c.id
"""  # noqa: S608 - the condition is the constant above
"""Questions of the branch being read; of all where that has none or cannot be found."""


def summaries(
    connection: sqlite3.Connection, wanted: Container[str] | None = None
) -> list[SessionSummary]:
    """A row a conversation, the latest first; of those `wanted` where they are given."""
    found = [
        SessionSummary(
            text_of(ident, Damage()),
            text_of(title, Damage()),
            time_of(updated, Damage()),
            count_of(turns, Damage(), "counts"),
        )
        for ident, title, updated, turns in connection.execute(_SUMMARIES)
        if wanted is None or ident in wanted
    ]
    return sorted(found, key=lambda one: (-one.updated, one.id))


def latest(connection: sqlite3.Connection) -> str | None:
    """The id of the latest conversation; None when there is none."""
    for known in (f"WHERE updated <= {LATEST_TIME} ", ""):
        row = connection.execute(
            f"SELECT id FROM conversations {known}ORDER BY updated DESC, id LIMIT 1"  # noqa: S608
        ).fetchone()
        if row is not None:
            return text_of(row[0], Damage())
    return None
