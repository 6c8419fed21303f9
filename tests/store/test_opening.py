from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from q35chat.chat.history.journal import untitled
from q35chat.errors import StoreError
from q35chat.store import Store, opening
from q35chat.store.folder import data_folder
from q35chat.store.migrations import SCHEMA, STEPS
from q35chat.store.opening import NAME
from q35chat.text import now, timestamp
from tests.store.builders import SETTINGS, conversation, user


def test_the_data_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert tmp_path in data_folder().parents
    assert data_folder().name == "q35chat"


def test_folders_are_for_the_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    with Store(folder) as store:
        store.create(conversation(), ())
    parts = [folder, *(path for path in folder.iterdir() if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in parts} == {0o700}
    assert (folder / NAME).stat().st_mode & 0o077 == 0


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(StoreError, match=r"data folder .* cannot be used"):
        Store(tmp_path / "data")


def test_a_conversation_file_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path)


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    path = tmp_path / NAME
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}.*Update q35chat"):
        Store(tmp_path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.glob(f"{NAME}*")] == [NAME]


@pytest.mark.parametrize("version", range(SCHEMA))
def test_a_file_of_every_older_schema_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    connection = sqlite3.connect(tmp_path / NAME)
    for step in STEPS[:version]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "an old question"),))
        assert [hit.turn for hit in store.search("question")] == ["u"]
    with Store(tmp_path) as store:
        assert len(store.load("c1")[1]) == 1


def test_turns_written_before_search_existed_are_found(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / NAME)
    for statement in STEPS[0]:
        connection.execute(statement)
    connection.execute("INSERT INTO conversations VALUES ('c', 't', 1, 1, 'u', '{}', 0)")
    connection.execute(
        "INSERT INTO turns VALUES (1, 'u', 'c', NULL, 'user', 'written long ago', '', x'', NULL,"
        " '', 0, '', '', NULL, NULL, x'', 1)"
    )
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    with Store(tmp_path) as store:
        assert [hit.turn for hit in store.search("long ago")] == ["u"]
        assert store.record("c").summary == ""


def damage_header(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 400)


def damage_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 3] = b"\xa5" * 8192
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize("damage", [damage_header, damage_page, cut_short])
def test_a_damaged_file_is_set_aside_whole_and_a_new_one_begun(
    tmp_path: Path, damage: object
) -> None:
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "precious"),))
    assert callable(damage)
    damage(tmp_path / NAME)
    left = (tmp_path / NAME).read_bytes()
    with Store(tmp_path) as store:
        assert store.listed() == []
        (aside,) = tmp_path.glob(f"{NAME}.damaged-*[0-9]")
        assert aside.read_bytes() == left
        assert str(aside) in store.message
        store.create(conversation(), ())
    with Store(tmp_path) as store:
        assert store.message == ""


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 2",
        "PRAGMA user_version = -5",
        "PRAGMA user_version = -2147483648",
        "DROP TABLE turns",
        "DROP TABLE conversations",
        "DROP TABLE turn_pictures",
        "ALTER TABLE conversations DROP COLUMN summary",
        "ALTER TABLE turns RENAME COLUMN text TO words",
        "DROP TABLE turns; PRAGMA user_version = 1",
    ],
)
def test_a_file_whose_tables_are_not_those_of_its_schema_is_set_aside_and_never_deleted(
    tmp_path: Path, statement: str
) -> None:
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "precious"),))
    connection = sqlite3.connect(tmp_path / NAME)
    connection.executescript(statement)
    connection.close()
    left = (tmp_path / NAME).read_bytes()
    with Store(tmp_path) as store:
        (aside,) = tmp_path.glob(f"{NAME}.damaged-*[0-9]")
        assert f"is kept as {aside}" in store.message
        assert len(store.message.splitlines()) == 1
        assert aside.read_bytes() == left
        store.create(conversation(), ())
    with Store(tmp_path) as store:
        assert store.message == ""
        assert [one.id for one in store.listed()] == ["c1"]


def test_tables_and_columns_of_others_are_no_damage(tmp_path: Path) -> None:
    Store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / NAME)
    connection.executescript(
        "CREATE TABLE notes (text); ALTER TABLE turns ADD COLUMN stars ANY; ANALYZE;"
    )
    connection.close()
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "fine"),))
        assert store.message == ""
        assert [hit.turn for hit in store.search("fine")] == ["u"]


def damaged_schema(path: Path, find: bytes) -> None:
    """One byte of the schema's own text, behind `find`, becomes one that is not UTF-8."""
    data = path.read_bytes()
    at = data.index(find) + len(find)
    path.write_bytes(data[:at] + b"\xa8" + data[at + 1 :])


@pytest.mark.parametrize("find", [b"CREATE TABLE ", b"id TEXT P", b"titl"])
@pytest.mark.parametrize("at_once", [0, opening.AT_ONCE])
def test_a_schema_that_is_not_utf8_is_damage_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: bytes, at_once: int
) -> None:
    monkeypatch.setattr(opening, "AT_ONCE", at_once)
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "precious"),))
    damaged_schema(tmp_path / NAME, find)
    left = (tmp_path / NAME).read_bytes()
    with Store(tmp_path) as store:
        (aside,) = tmp_path.glob(f"{NAME}.damaged-*[0-9]")
        assert aside.read_bytes() == left
        assert store.listed() == []


def test_a_schema_that_is_damaged_meanwhile_is_said_in_one_line(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "precious"),))
        store.listed()
        store._database.empty_log()
        damaged_schema(tmp_path / NAME, b"id TEXT P")
        with sqlite3.connect(tmp_path / NAME) as connection:
            connection.execute("PRAGMA schema_version = 99")
        connection.close()
        with pytest.raises(StoreError, match=r"damaged .* Start q35chat again"):
            store.listed()
    with Store(tmp_path) as store:
        assert store.listed() == []
        assert list(tmp_path.glob(f"{NAME}.damaged-*[0-9]"))


def test_files_set_aside_never_replace_each_other(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / NAME).write_bytes(b"damage %d " % number * 100)
        Store(tmp_path).close()
    kept = {path.read_bytes()[:8] for path in tmp_path.glob(f"{NAME}.damaged-*")}
    assert kept == {b"damage 0", b"damage 1", b"damage 2"}


@pytest.mark.parametrize("clock", [-1e15, 1e15, 2.0**62])
def test_a_clock_that_is_set_to_no_date_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: float
) -> None:
    monkeypatch.setattr("time.time", lambda: clock)
    (tmp_path / NAME).write_bytes(b"damage" * 100)
    with Store(tmp_path) as store:
        record = untitled("c1", SETTINGS)
        store.create(record, ())
        assert store.record("c1").created == record.created == now()
        assert store.markdown("c1")
    assert timestamp()[:4] in {"1970", "9999"}
