"""The list of chats, the latest first, and turns found by words.

A chat whose time is damaged comes last, whatever stands there. Width, case and composition of
letters do not matter. Every text is read for a search: an index would be a second copy of all of
them, and keep what is deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from q35chat.chat.history.records import SearchHit
from q35chat.chat.service import ListedConversation
from q35chat.store.columns import Losses, count_of, slots_of, text_of, time_of
from q35chat.text import LATEST_TIME, folded

Hit = tuple[str, str]
"""A turn that holds what was searched for, and the text around it."""
_AROUND = 40
_LONGEST_QUESTION = 100_000
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
    ), a.model, a.usage, c.pinned, c.tags
    FROM conversations c LEFT JOIN said s ON s.conversation = c.id
    LEFT JOIN turns a ON a.key = (
        SELECT max(t.key) FROM turns t WHERE t.conversation = c.id AND t.role = 'assistant'
    )
    WHERE NOT c.trashed
"""  # noqa: S608 - the condition is the constant above
"""Questions of the branch being read; of all where that has none or cannot be found."""


def listed(
    connection: sqlite3.Connection, wanted: Mapping[str, Hit] | None = None
) -> list[ListedConversation]:
    """A row a conversation, the latest first; of those `wanted` where they are given."""
    found = []
    for ident, title, updated, turns, model, usage, pinned, tags in connection.execute(_SUMMARIES):
        if wanted is None or ident in wanted:
            turn, words = wanted[ident] if wanted is not None else ("", "")
            summary = ListedConversation(
                text_of(ident, Losses()),
                text_of(title, Losses()),
                time_of(updated, Losses()),
                count_of(turns, Losses(), "counts"),
                "" if model is None else text_of(model, Losses()),
                slots_of(usage),
                pinned == 1,
                tuple(text_of(tags, Losses()).split()),
                words,
                turn,
            )
            found.append(summary)
    return sorted(found, key=lambda one: (-one.updated, one.id))


def latest(connection: sqlite3.Connection) -> str | None:
    """The id of the latest conversation; None when there is none."""
    shown = "SELECT id FROM conversations WHERE NOT trashed"
    for known in (f" AND updated <= {LATEST_TIME}", ""):
        row = connection.execute(f"{shown}{known} ORDER BY updated DESC, id LIMIT 1").fetchone()
        if row is not None:
            return text_of(row[0], Losses())
    return None


def questions(connection: sqlite3.Connection, most: int) -> list[str]:
    """At most so many questions of all chats, each once, the latest first."""
    rows = connection.execute(
        "SELECT t.text FROM turns t JOIN conversations c ON c.id = t.conversation "
        "WHERE NOT c.trashed AND t.role = 'user' AND length(t.text) <= ? "
        "ORDER BY t.key DESC LIMIT ?",
        (_LONGEST_QUESTION, most),
    )
    return list(dict.fromkeys(text_of(text, Losses()) for (text,) in rows))


def find(connection: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """Turns that hold every word of `query`, those of the latest conversations first."""
    words = _look_for(connection, query)
    if not words:
        return []
    rows = connection.execute(
        "SELECT c.id, c.title, t.id, t.role, t.text, c.updated "  # noqa: S608
        "FROM turns t JOIN conversations c ON c.id = t.conversation "
        "WHERE NOT c.trashed AND holds(CAST(t.text AS BLOB)) "
        f"ORDER BY c.updated <= {LATEST_TIME} DESC, c.updated DESC, t.key LIMIT ?",
        (limit,),
    )
    return [_hit(row, words[0]) for row in rows]


def matching(connection: sqlite3.Connection, query: str) -> dict[str, Hit]:
    """Conversations whose title, tags and summary, or one of whose turns, hold every word of
    `query`, each with the newest turn that does, else with none."""
    words = _look_for(connection, query)
    found: dict[str, Hit] = {}
    for ident, title, tags, summary in connection.execute(
        "SELECT id, title, tags, summary FROM conversations WHERE NOT trashed AND "
        "holds(CAST(title || char(10) || tags || char(10) || summary AS BLOB))"
    ):
        head = f"{text_of(title, Losses())} {text_of(tags, Losses())}"
        told = any(word in folded(head) for word in words)
        found[ident] = "", "" if told else excerpt(text_of(summary, Losses()), words[0])
    for conversation_id, turn, text in connection.execute(
        "SELECT conversation, id, text FROM turns WHERE holds(CAST(text AS BLOB)) ORDER BY key"
    ):
        found[conversation_id] = (
            text_of(turn, Losses()),
            excerpt(text_of(text, Losses()), words[0]),
        )
    return found


def _look_for(connection: sqlite3.Connection, query: str) -> list[str]:
    """The words of `query`; the SQL function `holds` tells whether a text has all of them."""
    words = folded(query).split()

    def holds(text: bytes | None) -> bool:
        spelled = folded((text or b"").decode("utf-8", "replace"))
        return all(word in spelled for word in words)

    connection.create_function("holds", 1, holds)
    return words


def excerpt(text: str, word: str) -> str:
    """One line of `text` around the first `word`, which is folded."""
    line = " ".join(text.split())
    at = max(folded(line).find(word), 0)
    start, end = max(at - _AROUND, 0), at + len(word) + _AROUND
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _hit(row: tuple[Any, ...], word: str) -> SearchHit:
    *stored, updated = row
    ident, title, turn, role, text = (text_of(value, Losses()) for value in stored)
    return SearchHit(ident, title, turn, role, excerpt(text, word), time_of(updated, Losses()))
