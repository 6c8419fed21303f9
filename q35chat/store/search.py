"""The list of chats, the latest first, and turns found by words.

A chat whose time is damaged comes last, whatever stands there. Width, case and composition of
letters do not matter. Words of three letters and more use the index, shorter ones a scan: two
Chinese characters are a word, and the index knows no piece that short.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Container
from typing import Any

from q35chat.chat.history.records import SearchHit
from q35chat.chat.service import SessionSummary
from q35chat.store.columns import LATEST_TIME, Damage, count_of, text_of, time_of

_PIECE = 3
_BATCH = 200
_AROUND = 40
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


def fold(text: str) -> str:
    """`text` in the one spelling of the index: compatibility composition and folded case."""
    return unicodedata.normalize("NFKC", text).casefold()


def catch_up(connection: sqlite3.Connection) -> bool:
    """Index up to a batch of turns that changed; True when more are waiting."""
    rows = connection.execute("SELECT key, text FROM turns WHERE indexed = 0 LIMIT ?", (_BATCH,))
    texts = [(key, fold(text_of(text, Damage()))) for key, text in rows]
    keys = [(key,) for key, _ in texts]
    connection.executemany("DELETE FROM turn_search WHERE rowid = ?", keys)
    connection.executemany("INSERT INTO turn_search (rowid, text) VALUES (?, ?)", texts)
    connection.executemany("UPDATE turns SET indexed = 1 WHERE key = ?", keys)
    return len(keys) == _BATCH


def forget(connection: sqlite3.Connection, session: str) -> None:
    """Take the turns of a conversation out of the index."""
    connection.execute(
        "DELETE FROM turn_search WHERE rowid IN (SELECT key FROM turns WHERE conversation = ?)",
        (session,),
    )


def find(connection: sqlite3.Connection, query: str, limit: int) -> list[SearchHit]:
    """Turns that hold every word of `query`, those of the latest conversations first."""
    words = fold(query).split()
    if not words:
        return []
    where, values = _where(words)
    rows = connection.execute(
        "SELECT c.id, c.title, t.id, t.role, t.text, c.updated FROM turn_search "  # noqa: S608
        "JOIN turns t ON t.key = turn_search.rowid JOIN conversations c ON c.id = t.conversation "
        f"WHERE {where} ORDER BY c.updated <= {LATEST_TIME} DESC, c.updated DESC, t.key LIMIT ?",
        (*values, limit),
    )
    return [_hit(row, words[0]) for row in rows]


def matching_sessions(connection: sqlite3.Connection, query: str) -> set[str]:
    """Conversations whose title and summary, or one of whose turns, hold every word of `query`."""
    words = fold(query).split()
    where, values = _where(words)
    by_text = connection.execute(
        "SELECT DISTINCT t.conversation FROM turn_search "  # noqa: S608
        f"JOIN turns t ON t.key = turn_search.rowid WHERE {where}",
        values,
    )
    found = {session for (session,) in by_text}
    for ident, *parts in connection.execute("SELECT id, title, summary FROM conversations"):
        head = fold("\n".join(text_of(part, Damage()) for part in parts))
        if all(word in head for word in words):
            found.add(ident)
    return found


def excerpt(text: str, word: str) -> str:
    """One line of `text` around the first `word`, which is folded."""
    line = " ".join(text.split())
    at = max(fold(line).find(word), 0)
    start, end = max(at - _AROUND, 0), at + len(word) + _AROUND
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _hit(row: tuple[Any, ...], word: str) -> SearchHit:
    *stored, updated = row
    session, title, turn, role, text = (text_of(value, Damage()) for value in stored)
    return SearchHit(session, title, turn, role, excerpt(text, word), time_of(updated, Damage()))


def _where(words: list[str]) -> tuple[str, list[str]]:
    long = [word for word in words if len(word) >= _PIECE]
    parts, values = [], []
    if long:
        parts.append("turn_search MATCH ?")
        values.append(" ".join('"' + word.replace('"', '""') + '"' for word in long))
    for word in words:
        if len(word) < _PIECE:
            parts.append("instr(turn_search.text, ?) > 0")
            values.append(word)
    return " AND ".join(parts), values
