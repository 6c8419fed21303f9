"""What was deleted can be read in no file of the store, however it is cut into pieces there."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from pathlib import Path

from q35chat.store import Store
from q35chat.store.migrations import STEPS
from q35chat.store.opening import NAME
from tests.store.builders import answer, conversation, user

SECRET = "龘靐齉 齾爩鱻 麤龖厵"
"""Characters that stand nowhere else, so that each of them tells of the secret, also where an index
has cut it into pieces."""


def left_of(folder: Path) -> set[str]:
    """The characters of the secret that stand in the file, its log or its journal."""
    raw = b"".join(path.read_bytes() for path in folder.glob(f"{NAME}*"))
    return {char for char in SECRET if char != " " and char.encode() in raw}


def kept(folder: Path) -> Store:
    """A store with a secret that was searched for, and other words beside it."""
    store = Store(folder)
    store.create(conversation("other", "o"), (user("o", None, "nothing to see 123"),))
    turns = (user("u", None, SECRET), replace(answer("a", "u", SECRET), note=SECRET))
    store.create(replace(conversation("c1", "a", title=SECRET), summary=SECRET), turns)
    assert [hit.turn for hit in store.search("齾爩鱻")] == ["u", "a"]
    assert len(left_of(folder)) == 9
    return store


def test_a_deleted_chat_is_nowhere_while_the_store_is_open(tmp_path: Path) -> None:
    with kept(tmp_path) as store:
        store.delete("c1")
        assert left_of(tmp_path) == set()


def test_a_deleted_chat_is_nowhere_after_a_search_for_it(tmp_path: Path) -> None:
    with kept(tmp_path) as store, Store(tmp_path) as other:
        other.listed("麤龖厵")
        store.delete("c1")
        other.search("麤龖厵")
    assert left_of(tmp_path) == set()


def test_a_text_that_was_written_over_is_nowhere_when_the_store_is_closed(tmp_path: Path) -> None:
    with kept(tmp_path) as store:
        store.rename("c1", "new")
        turns = (user("u", None, "new"), answer("a", "u", "new"))
        store.save(conversation("c1", "a"), turns)
        with store._database.writing() as connection:
            connection.execute("UPDATE conversations SET summary = ''")
    assert left_of(tmp_path) == set()


def test_a_former_title_is_nowhere_while_the_store_is_open(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create(conversation("c1", title=SECRET), ())
        store.rename("c1", "new")
        assert left_of(tmp_path) == set()


def test_of_many_chats_those_that_were_deleted_are_nowhere(tmp_path: Path) -> None:
    chance = random.Random(7)
    words = {
        f"id{chance.getrandbits(64):016x}": f"{chance.getrandbits(96):024x}" for _ in range(120)
    }
    with Store(tmp_path) as store:
        for ident, word in words.items():
            text = " ".join([word] * chance.randrange(1, 900))
            turns = (user(f"{ident}u", None, text), answer(f"{ident}a", f"{ident}u", text[:2000]))
            store.create(conversation(ident, f"{ident}a", title=word), turns)
        gone = chance.sample(sorted(words), 60)
        for ident in gone:
            store.delete(ident)
    raw = b"".join(path.read_bytes() for path in tmp_path.glob(f"{NAME}*"))
    assert [it for it in gone if words[it].encode() in raw or it.encode() in raw] == []
    assert all(words[ident].encode() in raw for ident in words.keys() - set(gone))


def test_an_older_file_loses_what_its_index_kept(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("PRAGMA secure_delete = on")
    for step in STEPS[:4]:
        for statement in step:
            connection.execute(statement)
    connection.execute("PRAGMA user_version = 4")
    connection.execute("INSERT INTO turn_search (rowid, text) VALUES (1, ?)", (SECRET,))
    connection.commit()
    connection.execute("DELETE FROM turn_search")
    connection.commit()
    connection.close()
    assert left_of(tmp_path)
    with Store(tmp_path) as store:
        assert store.message == ""
    assert left_of(tmp_path) == set()
