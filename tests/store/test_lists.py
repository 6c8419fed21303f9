"""Chats that are pinned, tagged, or on their way out, and what a list says of each."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import StoreError
from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.store.builders import answer, conversation, user


def filled(folder: Path) -> Store:
    store = Store(folder)
    turns = (user("u", None, "tell me of tides"), answer("a", "u", "The moon pulls the sea."))
    store.create(conversation("c1", "a", title="Sea"), turns)
    store.create(conversation("c2", "v", title="Other"), (user("v", None, "of the moon?"),))
    return store


def test_a_list_says_who_answered_and_what_was_found_where(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        found = {one.id: one for one in store.listed("moon")}
        assert found["c1"].model == answer("a", "u", "").model
        assert (found["c1"].hit, found["c1"].excerpt) == ("a", "The moon pulls the sea.")
        assert found["c2"].hit == "v"
        (by_title,) = store.listed("sea pulls")
        assert by_title.hit == "a"
        (by_title,) = store.listed("other")
        assert (by_title.hit, by_title.excerpt) == ("", "")


def test_tags_and_pins_are_kept_and_searched(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.tag("c1", ("#work", "#later"))
        store.pin("c1", True)
    with Store(tmp_path) as store:
        (found,) = store.listed("#work")
        assert (found.id, found.tags, found.pinned) == ("c1", ("#work", "#later"), True)
        store.pin("c1", False)
        store.tag("c1", ())
        assert not store.listed("#work")
        with pytest.raises(StoreError, match="no chat 'x'"):
            store.pin("x", True)


def test_a_trashed_chat_is_in_no_list_and_comes_back(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.trash("c1")
        assert [one.id for one in store.listed()] == ["c2"]
        assert [hit.session for hit in store.search("moon")] == ["c2"]
        assert store.questions(9) == ["of the moon?"]
        assert store.latest() == "c2"
        with pytest.raises(StoreError):
            store.resolve("c1")
        store.restore("c1")
        assert {one.id for one in store.listed()} == {"c1", "c2"}


def test_a_trashed_chat_is_gone_with_its_words_at_the_next_start(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.trash("c1")
    with Store(tmp_path) as store:
        store.sweep()
        with pytest.raises(StoreError, match="no chat 'c1'"):
            store.restore("c1")
    assert not any(b"tides" in file.read_bytes() for file in tmp_path.glob(f"{NAME}*"))


def test_a_chat_in_which_an_answer_is_written_is_not_trashed(tmp_path: Path) -> None:
    with (
        filled(tmp_path) as store,
        Store(tmp_path) as other,
        other.answering("c1"),
        pytest.raises(StoreError, match="being written"),
    ):
        store.trash("c1")


def test_questions_of_all_chats_are_given_once_the_latest_first(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        again = replace(user("w", "v", "tell me of tides"))
        store.save(conversation("c2", "w", title="Other"), (again,))
        assert store.questions(9) == ["tell me of tides", "of the moon?"]
        assert store.questions(1) == ["tell me of tides"]


def test_tables_that_are_made_again_keep_pins_and_tags(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        store.pin("c1", True)
        store.tag("c1", ("#work",))
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("PRAGMA writable_schema = on")
    connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')')")
    connection.commit()
    connection.close()
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("PRAGMA ignore_check_constraints = on")
    connection.execute("UPDATE conversations SET revision = 'no number' WHERE id = 'c2'")
    connection.execute("PRAGMA writable_schema = on")
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, ') WITHOUT ROWID', ') STRICT, WITHOUT ROWID')"
    )
    connection.commit()
    connection.close()
    with Store(tmp_path) as store:
        found = {one.id: one for one in store.listed()}
        assert (found["c1"].tags, found["c1"].pinned) == (("#work",), True)
