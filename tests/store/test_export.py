from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import StoreError
from q35chat.store import Store, export
from tests.store.builders import answer, conversation, picture, user
from tests.support.disk import full_after

HOSTILE = "a\x1b[31mred\x07\x9b2J\u202egnp.exe\nnext line 中文"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "data")
    cat, dog = picture(b"cat", "cat.png"), picture(b"dog", "my] dog<.JPG")
    cut = answer("a", "u", "The *cat* is grey.")
    cut = replace(cut, turn=replace(cut.turn, finish="capacity"), note="thinking was cut")
    store.create(
        conversation("c1", "a", title="Cats & dogs: who? / 谁"),
        (user("u", None, "Who is it?", cat, dog), cut, answer("b", "u", "Another branch.")),
    )
    return store


def test_markdown_shows_the_branch_being_read_with_pictures_beside_it(
    store: Store, tmp_path: Path
) -> None:
    target = store.export_markdown("c1", tmp_path / "out")
    assert target.name == "Cats-dogs-who-谁.md"
    text = target.read_text(encoding="utf-8")
    for part in ("# Cats & dogs", "## You", "Who is it?", "> I think", "The *cat* is grey."):
        assert part in text
    assert "*(capacity reached)*" in text
    assert "*(thinking was cut)*" in text
    assert "Another branch" not in text
    assert f"![cat.png](<{target.stem}-pictures/picture-1.png>)" in text
    assert f"![my) dog<.JPG](<{target.stem}-pictures/picture-2.jpg>)" in text
    folder = tmp_path / "out" / f"{target.stem}-pictures"
    assert (folder / "picture-1.png").read_bytes() == b"cat"
    assert (folder / "picture-2.jpg").read_bytes() == b"dog"


def test_a_summary_stands_quoted_before_the_turns(store: Store) -> None:
    begun = conversation("c2", title="Cats (continued)")
    store.create(replace(begun, summary="They like cats.\n\x1b[2JNo dogs."), ())
    heading, _, quotation = store.markdown("c2").rstrip().split("\n\n")
    assert heading == "# Cats (continued)"
    assert quotation.split("\n") == [
        "> *What was said before, in short*",
        ">",
        "> They like cats.",
        "> ␛[2JNo dogs.",
    ]
    assert json.loads(store.json("c2"))["summary"] == "They like cats.\n\x1b[2JNo dogs."
    assert json.loads(store.json("c1"))["summary"] == ""
    assert "said before" not in store.markdown("c1")


def test_json_goes_into_a_folder_or_a_file(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    written = [store.export_json("c1", folder) for _ in range(2)]
    assert [path.name for path in written] == ["Cats-dogs-who-谁.json", "Cats-dogs-who-谁-2.json"]
    assert store.export_json("c1", tmp_path / "mine.json") == tmp_path / "mine.json"
    texts = {path.read_text() for path in (*written, tmp_path / "mine.json")}
    assert texts == {store.json("c1") + "\n"}
    with pytest.raises(StoreError, match="cannot be written"):
        store.export_json("c1", tmp_path / "no" / "mine.json")


def test_an_earlier_export_is_never_written_over(store: Store, tmp_path: Path) -> None:
    first = store.export_markdown("c1", tmp_path)
    first.write_text("mine")
    second = store.export_markdown("c1", tmp_path)
    assert second != first
    assert first.read_text() == "mine"


@pytest.mark.parametrize("title", ["../../etc/passwd", "..", "/", "\x00", "", "x" * 300, "-rf"])
def test_any_title_becomes_a_name_inside_the_folder(
    store: Store, tmp_path: Path, title: str
) -> None:
    store.rename("c1", title)
    target = store.export_markdown("c1", tmp_path / "out")
    assert target.parent == tmp_path / "out"
    assert target.is_file()
    assert not target.name.startswith(("-", "."))


def test_what_steers_a_terminal_is_visible_in_markdown_and_escaped_in_json(
    store: Store, tmp_path: Path
) -> None:
    turn = answer("x", "u", HOSTILE)
    turn = replace(turn, turn=replace(turn.turn, reasoning=HOSTILE), note=HOSTILE)
    hostile = picture(b"p", HOSTILE)
    store.create(conversation(f"c3{HOSTILE}"), ())
    store.create(conversation("c2", "x", title=HOSTILE), (user("v", None, HOSTILE, hostile), turn))
    store.save(conversation("c2", "x"), (replace(turn, parent="v", id="y"),))
    store.save(conversation("c2", "y"), ())
    markdown = store.export_markdown("c2", tmp_path / "out").read_text(encoding="utf-8")
    shown, document = store.markdown("c2"), store.json("c2")
    named = store.markdown(f"c3{HOSTILE}")
    for text in (markdown, shown, document, named):
        assert not set(text) & set("\x1b\x07\x9b\u202e")
        assert "中文" in text
    assert json.loads(document)["turns"][0]["text"] == HOSTILE
    assert json.loads(document)["title"] == HOSTILE


def test_json_holds_every_branch_ids_settings_and_timings(store: Store) -> None:
    value = json.loads(store.json("c1"))
    assert [turn["id"] for turn in value["turns"]] == ["u", "a", "b"]
    assert value["active"] == ["u", "a"]
    second = value["turns"][1]
    assert second["token_ids"] == [5, 6, 4_000_000_000]
    assert second["finish_reason"] == "capacity"
    assert second["settings"]["thinking_budget"] == 64
    assert second["usage"]["timings"]["predict_ms"] == [1.0, 2.5]
    assert Path(value["turns"][0]["pictures"][0]["file"]).read_bytes() == b"cat"


def test_a_missing_picture_is_said(store: Store, tmp_path: Path) -> None:
    store.pictures.remove(picture(b"cat").sha256)
    text = store.export_markdown("c1", tmp_path / "out").read_text()
    assert "*cat.png: this picture is missing*" in text


def test_a_folder_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        store.export_markdown("c1", tmp_path / "file" / "out")


@pytest.mark.parametrize("room", [0, 2, 100])
def test_an_export_that_fails_leaves_what_stood_there(
    store: Store, tmp_path: Path, room: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    old = store.export_json("c1", out / "old.json")
    before = old.read_bytes()
    loaded = store.load("c1")
    writes: list[Callable[[], Path]] = [
        lambda: export.write_json(loaded, lambda _: "p", old),
        lambda: export.write_json(loaded, lambda _: "p", out / "new.json"),
        lambda: export.write_json(loaded, lambda _: "p", out),
        lambda: export.write_markdown(loaded, out),
    ]
    for write in writes:
        with full_after(room), pytest.raises(StoreError, match="cannot be written"):
            write()
        assert list(out.iterdir()) == [old]
    assert old.read_bytes() == before


def test_a_conversation_without_turns_is_exported(store: Store, tmp_path: Path) -> None:
    store.create(conversation("empty", title="Nothing"), ())
    assert store.export_markdown("empty", tmp_path).read_text().startswith("# Nothing")
    assert json.loads(store.json("empty"))["turns"] == []


@pytest.mark.parametrize("killed_at", ["write_text", "rename", "second rename"])
@pytest.mark.parametrize("ident", ["c1", "empty"])
def test_an_export_that_was_killed_leaves_its_name_free(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, ident: str
) -> None:
    store.create(conversation("empty", title="Nothing"), ())
    folder = tmp_path / "out"
    named = store.export_markdown(ident, folder).name
    whole = sorted(path.name for path in folder.iterdir())
    shutil.rmtree(folder)
    child = os.fork()
    if child == 0:
        kill_at(monkeypatch, killed_at)
        store.export_markdown(ident, folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (
        0 if (ident, killed_at[0]) == ("empty", "s") else 9
    )
    if killed_at != "second rename":
        assert not (folder / named).exists()
    (folder / named).unlink(missing_ok=True)
    assert store.export_markdown(ident, folder).name == named
    assert sorted(path.name for path in folder.iterdir()) == whole


def kill_at(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The process ends in this call, as if it were killed, before anything is done."""
    name, left = call.rsplit(maxsplit=1)[-1], [call.startswith("second")]
    real = getattr(Path, name)

    def die(path: Path, *arguments: object, **options: object) -> object:
        if left.pop() if left else False:
            return real(path, *arguments, **options)
        os._exit(9)

    monkeypatch.setattr(Path, name, die)
