"""Two chats, and what can be wrong with the rows of the first of them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from q35chat.chat.history.records import TurnRecord
from q35chat.chat.history.tree import TurnTree
from q35chat.store import Store
from q35chat.store.migrations import STEPS
from q35chat.store.opening import NAME
from tests.store.builders import answer, conversation, later, picture, user

LAST_UNTYPED = 3
"""The last schema whose columns took values of any type."""
TEXTS = ["What?", "A cat.", "And now?", "A dog."]
TURNS = (
    user("u", None, "What?", picture()),
    answer("a", "u", "A cat."),
    user("v", "a", "And now?"),
    answer("b", "v", "A dog."),
)


def damaged(folder: Path, statement: str) -> Store:
    """A store in which `statement` was done to the first of two chats."""
    fill(folder)
    force(folder / NAME, statement)
    return Store(folder)


def untyped(folder: Path, statement: str) -> Store:
    """The same, done to a file from before its tables were strict."""
    fill(folder)
    (folder / NAME).rename(folder / "filled.db")
    connection = sqlite3.connect(folder / NAME, isolation_level=None)
    for step in STEPS[:LAST_UNTYPED]:
        for made in step:
            connection.execute(made)
    connection.execute("ATTACH ? AS filled", (str(folder / "filled.db"),))
    for table in ("conversations", "turns", "turn_pictures"):
        names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
        now = {row[1] for row in connection.execute(f"PRAGMA filled.table_info({table})")}
        names = [name for name in names if name in now]
        row = ", ".join(names)
        connection.execute(f"INSERT INTO {table} ({row}) SELECT {row} FROM filled.{table}")
    connection.executescript(f"{statement}; PRAGMA user_version = {LAST_UNTYPED}")
    connection.close()
    return Store(folder)


def fill(folder: Path) -> None:
    with Store(folder) as store:
        store.create(later(conversation("c1", "b", title="Pets"), "b", 200.0), TURNS)
        store.create(later(conversation("c2", "x", title="Other"), "x", 100.0), (other(),))


def force(path: Path, statement: str) -> None:
    """Do what no strict table would allow, as a damaged disk does."""
    connection = sqlite3.connect(path)
    tables = connection.execute("SELECT sql, name FROM sqlite_schema WHERE sql LIKE '%) STRICT%'")
    strict = [(sql, name) for sql, name in tables]
    loose = [(re.sub(r"\) STRICT(, )?", ") ", sql), name) for sql, name in strict]
    connection.executescript("PRAGMA ignore_check_constraints = on; PRAGMA writable_schema = on")
    connection.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", loose)
    connection.commit()
    connection.executescript(f"PRAGMA writable_schema = reset; {statement}")
    connection.executescript("PRAGMA writable_schema = on")
    connection.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", strict)
    connection.commit()
    connection.close()


def other() -> TurnRecord:
    return user("x", None, "Another question")


def path(store: Store) -> tuple[TurnRecord, ...]:
    record, turns = store.load("c1")
    return TurnTree(turns).path(record.head)


CHAT = "WHERE conversation = 'c1'"
ORDERS = {
    "a turn is its own parent": f"UPDATE turns SET parent = id {CHAT}",
    "turns in a circle": "UPDATE turns SET parent = 'b' WHERE id = 'u'",
    "a parent that is missing": "UPDATE turns SET parent = 'gone' WHERE id = 'v'",
    "a parent in another chat": "UPDATE turns SET parent = 'x' WHERE id = 'v'",
    "a head that is missing": "UPDATE conversations SET head = 'nope' WHERE id = 'c1'",
    "a head in another chat": "UPDATE conversations SET head = 'x' WHERE id = 'c1'",
    "other ids": f"UPDATE turns SET id = 'other ' || id {CHAT}",
    "ids that are bytes": f"UPDATE turns SET id = CAST('x' || id AS BLOB) {CHAT}",
    "nobody said it": f"UPDATE turns SET role = 'zzz' {CHAT}",
    "said by bytes": f"UPDATE turns SET role = x'00ff' {CHAT}",
}
FIELDS = {
    "settings of nothing": "UPDATE conversations SET settings = 'null' WHERE id = 'c1'",
    "settings with a tail": "UPDATE conversations SET settings = '{}x' WHERE id = 'c1'",
    "settings that are a list": f"UPDATE turns SET settings = '[]' {CHAT}",
    "settings that are bytes": f"UPDATE turns SET settings = x'ff7b7d' {CHAT}",
    "settings of endless depth": f"UPDATE turns SET settings = '{'[' * 100_000}' {CHAT}",
    "settings of endless digits": f"UPDATE turns SET settings = '{'9' * 9_000}' {CHAT}",
    "a sampling that is a number": (
        "UPDATE conversations SET settings = '{\"sampling\": 3}' WHERE id = 'c1'"
    ),
    "no counts": f"UPDATE turns SET usage = '{{}}' {CHAT}",
    "counts that are text": f"UPDATE turns SET usage = replace(usage, '100', '\"x\"') {CHAT}",
    "times that are text": f"UPDATE turns SET usage = replace(usage, '1.5', 'NaN') {CHAT}",
    "half a token id": f"UPDATE turns SET token_ids = x'010203' {CHAT}",
    "token ids that are text": f"UPDATE turns SET token_ids = 'abc' {CHAT}",
    "step times that are text": f"UPDATE turns SET step_times = 'abc' {CHAT}",
    "half a step time": f"UPDATE turns SET step_times = x'010203' {CHAT}",
    "a step that took no number": (
        f"UPDATE turns SET step_times = x'000000000000f07f000000000000f87f' {CHAT}"
    ),
    "an ending nobody knows": f"UPDATE turns SET finish = 'zzz' {CHAT}",
    "an ending that is bytes": f"UPDATE turns SET finish = x'ff' {CHAT}",
    "a note that is no UTF-8": f"UPDATE turns SET note = CAST(x'ff41' AS TEXT) {CHAT}",
    "a model that is no UTF-8": f"UPDATE turns SET model = CAST(x'ff41' AS TEXT) {CHAT}",
    "a title that is no UTF-8": (
        "UPDATE conversations SET title = CAST(x'ff41' AS TEXT) WHERE id = 'c1'"
    ),
    "a title that is bytes": "UPDATE conversations SET title = x'ff41' WHERE id = 'c1'",
    "a summary that is no UTF-8": (
        "UPDATE conversations SET summary = CAST(x'ff41' AS TEXT) WHERE id = 'c1'"
    ),
    "a time without end": "UPDATE conversations SET updated = 1e300 WHERE id = 'c1'",
    "a time that is infinite": "UPDATE conversations SET updated = 9e999 WHERE id = 'c1'",
    "a time that is text": "UPDATE conversations SET updated = 'x' WHERE id = 'c1'",
    "a time that is bytes": "UPDATE conversations SET updated = x'00' WHERE id = 'c1'",
    "a time before all time": "UPDATE conversations SET updated = -1e300 WHERE id = 'c1'",
    "a turn of no time": f"UPDATE turns SET created = 'x' {CHAT}",
    "pictures of no size": "UPDATE turn_pictures SET width = 'x', height = -1, tokens = 1.5",
    "a picture without a hash": "UPDATE turn_pictures SET sha256 = 'ab' || char(0)",
    "a picture whose name is bytes": "UPDATE turn_pictures SET name = x'ff'",
}
UNSEEN = {
    "left out by a word": f"UPDATE turns SET left_out = 'x' {CHAT}",
    "a revision that is text": "UPDATE conversations SET revision = 'x' WHERE id = 'c1'",
}
ALL = ORDERS | FIELDS
TAKEN = {
    "a sampling that is a number",
    "no counts",
    "counts that are text",
    "a step that took no number",
    *(name for name in FIELDS if "no UTF-8" in name),
}
"""Fields that a strict table takes all the same."""
REFUSED = {name: what for name, what in (FIELDS | UNSEEN).items() if name not in TAKEN}
