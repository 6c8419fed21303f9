"""Find turns by words. Words of three letters and more use the index, shorter ones a scan.

Two Chinese characters are a word, and the index knows no piece that short.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from q35chat.chat.history.records import SearchHit
from q35chat.store.codec import LATEST_TIME, text_of, time_of
from q35chat.store.damage import Damage
from q35chat.store.folding import fold

_PIECE = 3
_BATCH = 200
_AROUND = 40


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
