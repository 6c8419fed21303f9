"""Rows that nobody wrote so: SQLite finds the file whole, and every chat stays usable."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from q35chat.chat.values import ChatSettings
from q35chat.errors import StoreError
from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.store.builders import SETTINGS, conversation, later, user
from tests.store.damages import (
    ALL,
    FIELDS,
    ORDERS,
    REFUSED,
    TEXTS,
    UNSEEN,
    damaged,
    fill,
    other,
    path,
    untyped,
)


@pytest.mark.parametrize("statement", ORDERS.values(), ids=ORDERS)
def test_turns_whose_order_is_damaged_are_all_shown(tmp_path: Path, statement: str) -> None:
    with damaged(tmp_path, statement) as store:
        assert [turn.turn.text for turn in path(store)] == TEXTS
        assert [turn.turn.role for turn in path(store)] == ["user", "assistant"] * 2


@pytest.mark.parametrize("statement", FIELDS.values(), ids=FIELDS)
def test_a_damaged_field_takes_nothing_else_with_it(tmp_path: Path, statement: str) -> None:
    with damaged(tmp_path, statement) as store:
        shown = path(store)
        assert [(turn.id, turn.turn.text) for turn in shown] == list(
            zip("uavb", TEXTS, strict=True)
        )
        assert [turn.turn.reasoning for turn in shown] == ["", "I think"] * 2


@pytest.mark.parametrize("statement", ALL.values(), ids=ALL)
def test_damage_is_told_in_one_line_that_names_the_chat(tmp_path: Path, statement: str) -> None:
    with damaged(tmp_path, statement) as store:
        assert store.message == ""
        title = store.load("c1")[0].title
        assert f"The chat {title!r} is damaged" in store.message
        assert "begin a new chat" in store.message
        assert len(store.message.splitlines()) == 1
        store.load("c2")
        assert store.message == ""


@pytest.mark.parametrize("statement", (ALL | UNSEEN).values(), ids=ALL | UNSEEN)
def test_damage_in_one_chat_takes_nothing_from_the_others_and_is_gone_on_from(
    tmp_path: Path, statement: str
) -> None:
    with damaged(tmp_path, statement) as store:
        assert {one.id for one in store.listed()} == {"c1", "c2"}
        assert [hit.turn for hit in store.search("another")] == ["x"]
        assert [one.id for one in store.listed("other")] == ["c2"]
        assert store.load("c2") == (later(conversation("c2", "x", "Other"), "x", 100.0), (other(),))
        assert "A dog." in store.markdown("c1")
        assert len(json.loads(store.json("c1"))["active"]) == 4
        assert store.export_markdown("c1", tmp_path / "out").is_file()
        record, turns = store.load("c1")
        assert record.head is not None
        asked = user("w", record.head, "Still there?")
        store.save(replace(record, head="w", updated=300.0), (asked,), since=record)
        assert [turn.turn.text for turn in path(store)] == [*TEXTS, "Still there?"]
        left_out = replace(turns[0], left_out=True)
        store.save(replace(record, updated=300.0), (left_out,), since=record)
        assert store.latest() == "c1"
        store.rename("c1", "Renamed")
        assert {one.title for one in store.listed()} == {"Renamed", "Other"}
        store.delete("c1")
        assert [one.id for one in store.listed()] == ["c2"]
    with Store(tmp_path) as store:
        assert store.message == ""


def test_settings_that_are_damaged_are_the_defaults_and_stay_in_the_file(tmp_path: Path) -> None:
    with damaged(tmp_path, FIELDS["settings with a tail"]) as store:
        record, _ = store.load("c1")
        assert record.settings == ChatSettings()
        store.save(replace(record, head="a"), (), since=record)
        with store._database.reading() as connection:
            (kept,) = connection.execute("SELECT settings FROM conversations WHERE id = 'c1'")
        assert kept == ("{}x",)
        store.save(replace(record, settings=SETTINGS), (), since=record)
        assert store.load("c1")[0].settings == SETTINGS
        assert store.message == ""


@pytest.mark.parametrize(
    "values",
    [
        {"max_image_tokens": "x"},
        {"thinking": 1, "thinking_budget": -1, "max_new_tokens": 1.5},
        {"stop": "###", "loop_guard": None},
        {"stop": [1], "system_prompt": "\ud800"},
        {"sampling": {"temperature": -1.0, "top_k": True, "top_p": float("nan"), "seed": "x"}},
        {"sampling": {"repetition_penalty": 0, "min_p": 2, "presence_penalty": float("inf")}},
    ],
)
def test_one_damaged_setting_is_its_default_and_the_others_stay(
    tmp_path: Path, values: dict[str, object]
) -> None:
    text = json.dumps({"max_image_tokens": 77, "thinking": True, **values})
    with damaged(tmp_path, f"UPDATE conversations SET settings = '{text}'") as store:
        settings = store.load("c1")[0].settings
        assert "settings" in store.message
    fallback = ChatSettings(max_image_tokens=77, thinking=True)
    defaults = {name: getattr(ChatSettings(), name) for name in values}
    assert settings == replace(fallback, **defaults)


def test_counts_that_are_damaged_are_dropped_and_damaged_times_alone(tmp_path: Path) -> None:
    with damaged(tmp_path, FIELDS["no counts"]) as store:
        assert [turn.usage for turn in path(store)] == [None] * 4
    with damaged(tmp_path / "second", FIELDS["half a step time"]) as store:
        usage = path(store)[1].usage
        assert usage is not None
        assert (usage.timings.wall_ms, usage.timings.prefill_ms) == ((), 20.25)


def test_a_chat_whose_time_is_damaged_is_not_the_latest(tmp_path: Path) -> None:
    damages = [FIELDS[name] for name in FIELDS if name.startswith("a time ")]
    assert len(damages) == 5
    for number, statement in enumerate(damages):
        with damaged(tmp_path / str(number), statement) as store:
            assert [one.id for one in store.listed()] == ["c2", "c1"]
            assert store.latest() == "c2"
            assert [hit.session for hit in store.search("o")] == ["c2", "c1", "c1"]
            store.delete("c2")
            assert store.latest() == "c1"


def test_what_is_no_hash_is_no_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with damaged(tmp_path / "data", f"UPDATE turn_pictures SET sha256 = '{mine}'") as store:
        assert path(store)[0].turn.attachments[0].data == b""
        store.delete("c1")
    assert mine.read_text() == "mine"


def test_a_chat_whose_id_is_a_path_has_its_lock_in_its_folder(tmp_path: Path) -> None:
    mine = tmp_path / "mine.lock"
    mine.write_text("mine")
    ident = f"{tmp_path}/mine"
    with Store(tmp_path / "data") as store:
        store.create(conversation(ident), ())
        with store.answering(ident), pytest.raises(StoreError, match="being written"):
            store.delete(ident)
        store.delete(ident)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("statement", (ALL | UNSEEN).values(), ids=ALL | UNSEEN)
def test_reading_a_damaged_chat_changes_nothing_in_the_file(tmp_path: Path, statement: str) -> None:
    damaged(tmp_path, statement).close()
    before = (tmp_path / NAME).read_bytes()
    with Store(tmp_path) as store:
        store.load("c1")
        store.markdown("c1")
        store.listed()
    assert (tmp_path / NAME).read_bytes() == before


@pytest.mark.parametrize("statement", (ALL | UNSEEN).values(), ids=ALL | UNSEEN)
def test_rows_of_an_older_file_that_fit_no_strict_table_are_kept_and_told(
    tmp_path: Path, statement: str
) -> None:
    with damaged(tmp_path / "strict", statement) as store:
        found, message = path(store), store.message
    with untyped(tmp_path / "untyped", statement) as store:
        assert (path(store), store.message) == (found, message)
        assert store.load("c2")[1] == (other(),)


def test_an_older_file_whose_rows_fit_no_strict_table_at_all_is_set_aside(tmp_path: Path) -> None:
    with untyped(
        tmp_path, "UPDATE conversations SET id = CAST('c1' AS BLOB) WHERE id = 'c2'"
    ) as store:
        (aside,) = tmp_path.glob(f"{NAME}.damaged-*[0-9]")
        assert f"is kept as {aside}" in store.message
        assert store.listed() == []


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED)
def test_a_table_refuses_what_is_no_value_of_its_column(tmp_path: Path, statement: str) -> None:
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / NAME)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    connection.close()


COLUMNS = [
    (table, column)
    for table, columns in {
        "conversations": """
            id title created updated head settings revision summary pinned tags trashed
        """,
        "turns": """
            id conversation parent role text reasoning token_ids finish note left_out model
            tokenizer settings usage step_times created
        """,
        "turn_pictures": "turn position sha256 name width height tokens",
    }.items()
    for column in columns.split()
]
VALUES = [
    "'zzz'",
    "char(0)",
    "x'00ff41'",
    "CAST(x'ff41' AS TEXT)",
    "'../../' || hex(zeroblob(200))",
    "'[1]'",
    "-9e999",
    "9223372036854775807",
]


@settings(max_examples=60)
@given(where=st.sampled_from(COLUMNS), value=st.sampled_from(VALUES))
def test_no_value_in_any_column_stops_the_other_chats_or_is_a_failure_nobody_foresaw(
    where: tuple[str, str], value: str
) -> None:
    table, column = where
    first = {
        "conversations": "id = 'c1'",
        "turns": "conversation = 'c1' AND id = 'a'",
        "turn_pictures": "position = 0",
    }[table]
    change = f"UPDATE {table} SET {column} = {value} WHERE {first}"
    with TemporaryDirectory() as folder, damaged(Path(folder), change) as store:
        for session in store.listed():
            uses: list[Callable[[str], object]] = [
                store.load, store.markdown, store.json, store.record,
                store.search, store.listed, store.resolve,
            ]  # fmt: skip
            for use in uses:
                with suppress(StoreError):
                    use(session.id)
        assert store.load("c2")[1] == (other(),)
        assert "x" in [hit.turn for hit in store.search("another")]
        store.rename("c2", "Renamed")
        store.delete("c2")
        with suppress(StoreError):
            store.delete("c1")


def test_every_column_is_tried(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store._database.reading() as connection:
        found = connection.execute(
            "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c "
            "WHERE t.type = 'table' AND t.name IN ('conversations', 'turns', 'turn_pictures')"
        ).fetchall()
    assert set(COLUMNS) == set(found) - {("turns", "key")}
