from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from q35chat import cli
from q35chat.store import Store
from q35chat.store.opening import NAME
from q35chat.tui.chat.drafts import Drafts
from tests.cli.scripted import Terminal
from tests.store.builders import answer, conversation, later, user
from tests.store.damages import force


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("HOME", str(tmp_path))
    store = Store()
    store.create(
        later(conversation("aaaa1111bbbb", title="Tea"), "a", 2000.0),
        (user("u", None, "How do I make 龙井茶?"), answer("a", "u", "With hot \x1b[2Jwater.")),
    )
    store.create(later(conversation("aaaa2222cccc", title="Evil \x1b[2J"), None, 1000.0), ())
    return store


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["sessions", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_shows_the_latest_first_and_nothing_that_steers(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    first, second = out.splitlines()
    assert "aaaa1111" in first
    assert "Tea" in first
    assert "Evil" in second
    assert "\x1b" not in out
    assert run(capsys, "list", "--limit", "1")[1].splitlines() == [first]


def test_list_counts_turns_and_says_what_began_with_a_summary(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = run(capsys, "list")[1].splitlines()
    assert "aaaa1111          1 turn        Tea" in first
    assert "aaaa2222  from a summary        Evil" in second


def test_list_as_json_names_whole_ids(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "list", "--json")[1])
    assert [session["id"] for session in found] == ["aaaa1111bbbb", "aaaa2222cccc"]
    assert found[0]["turns"] == 1


def test_an_empty_list_says_how_to_begin(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for session in store.listed():
        store.delete(session.id)
    code, out, err = run(capsys, "list")
    assert (code, out) == (0, "")
    assert "q35chat begins one" in err


def test_show_prints_the_conversation_and_nothing_that_steers(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "show", "aaaa1")
    assert code == 0
    assert "How do I make 龙井茶?" in out
    assert "With hot ␛[2Jwater." in out


def test_show_and_export_take_the_latest_when_none_is_named(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "show") == run(capsys, "show", "aaaa1")
    assert run(capsys, "export", "-f", "json") == run(capsys, "export", "aaaa1", "-f", "json")


def test_the_command_is_part_of_the_program(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["sessions", "list"]) == 0
    assert "Tea" in capsys.readouterr().out
    assert cli.run(["sessions", "show", "nope"]) == 1
    assert "no chat 'nope'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("export", "-f", "json"),
        ("export", "-o", "out"),
        ("export", "-f", "json", "-o", "x"),
    ],
)
def test_a_damaged_chat_is_shown_as_far_as_it_can_be_read_and_named(
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    harm = (
        "UPDATE conversations SET settings = '{}x', updated = 1e300; UPDATE turns SET usage = '{}'"
    )
    force(store.folder / NAME, harm)
    code, out, err = run(capsys, *command[:1], "aaaa1", *command[1:])
    assert code == 0
    assert out
    assert err.startswith(
        "The chat 'Tea' is damaged in the data folder: its dates, settings and counts."
    )
    assert len(err.splitlines()) == 1
    assert run(capsys, "list")[0] == 0


def test_search_prints_the_turns_that_match(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "search", "龙井", "make")
    assert out.count("aaaa1111") == 1
    assert "龙井茶" in out
    assert "\x1b" not in run(capsys, "search", "water")[1]
    (hit,) = json.loads(run(capsys, "search", "water", "--json")[1])
    assert hit["session"] == "aaaa1111bbbb"
    code, out, err = run(capsys, "search", "coffee")
    assert (code, out) == (0, "")
    assert "nothing found" in err


def test_export_writes_markdown_into_a_folder_and_names_it(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, out, _ = run(capsys, "export", "aaaa1", "-o", str(tmp_path / "out"))
    assert Path(out.strip()) == tmp_path / "out" / "Tea.md"
    assert "龙井茶" in (tmp_path / "out" / "Tea.md").read_text()


def test_export_takes_the_folder_after_the_id(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert run(capsys, "export", "aaaa1", str(folder))[:2] == (0, f"{folder / 'Tea.md'}\n")
    arguments = ("export", "aaaa1", str(folder), "--format", "json")
    assert run(capsys, *arguments)[:2] == (0, f"{folder / 'Tea.json'}\n")
    code, _, err = run(capsys, "export", "aaaa1", str(folder), "-o", str(folder))
    assert code == 2
    assert "give one of them" in err


def test_export_as_json_goes_to_stdout_or_a_file(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, out, _ = run(capsys, "export", "aaaa1", "--format", "json")
    assert json.loads(out)["title"] == "Tea"
    target = tmp_path / "tea.json"
    run(capsys, "export", "aaaa1", "-f", "json", "-o", str(target))
    assert json.loads(target.read_text()) == json.loads(out)
    code, _, err = run(capsys, "export", "aaaa1", "-f", "json", "-o", str(tmp_path / "no" / "x"))
    assert code == 1
    assert "cannot be written" in err


def test_rename_changes_the_title(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "rename", "aaaa1", " Green\ntea ")[0] == 0
    assert store.record("aaaa1111bbbb").title == "Green tea"
    code, _, err = run(capsys, "rename", "aaaa1", "  ")
    assert code == 2
    assert "at least one character" in err


@pytest.mark.parametrize("command", ["show", "export", "rename", "delete"])
def test_an_unknown_or_ambiguous_id_is_one_line(
    store: Store, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    rest = {"rename": ["title"], "delete": ["--yes"]}.get(command, [])
    for ident, said in (("zzz", "no chat 'zzz'"), ("aaaa", "Several")):
        code, out, err = run(capsys, command, ident, *rest)
        assert (code, out) == (1, "")
        assert said in err
        assert len(err.splitlines()) == 1
    assert len(store.listed()) == 2


def test_delete_with_yes_does_not_ask(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "delete", "aaaa1", "aaaa2", "--yes") == (0, "", "")
    assert store.listed() == []


def test_delete_takes_the_draft_along(
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    drafts = Drafts.at_home()
    drafts.put("aaaa1111bbbb", "a secret")
    drafts.save()
    assert run(capsys, "delete", "aaaa1", "--yes") == (0, "", "")
    assert "a secret" not in (tmp_path / "state" / "q35chat" / "drafts.json").read_text()


def test_delete_without_a_terminal_needs_yes(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = run(capsys, "delete", "aaaa1")
    assert code == 2
    assert "--yes" in err
    assert len(store.listed()) == 2


@pytest.mark.parametrize(
    ("typed", "left", "code"),
    [("y\n", 1, 0), ("YES\n", 1, 0), ("n\n", 2, 1), ("\n", 2, 1), ("", 2, 1)],
)
def test_delete_asks(
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    left: int,
    code: int,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    ended, _, err = run(capsys, "delete", "aaaa1")
    assert (ended, len(store.listed())) == (code, left)
    assert "Tea" in err


def test_a_damaged_store_is_said_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.close()
    next(store.folder.glob("*.db")).write_bytes(b"damage" * 1000)
    code, out, err = run(capsys, "list")
    assert (code, out) == (0, "")
    assert "was damaged: it is kept as" in err
    assert "damaged" not in run(capsys, "list")[2]


def test_import_takes_back_what_was_exported_and_says_what_is_here(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "tea.json"
    assert run(capsys, "export", "aaaa1", "--format", "json", "-o", str(file))[0] == 0
    code, out, err = run(capsys, "import", str(file))
    assert (code, out, err) == (0, "", f"here already: 1 chat of {file}\n")
    store.delete("aaaa1111bbbb")
    code, out, err = run(capsys, "import", str(file))
    assert (code, err) == (0, "")
    assert "aaaa1111  Tea" in out
    assert "\x1b" not in out
    assert "龙井茶" in run(capsys, "show", "aaaa1")[1]


def test_import_of_what_is_no_export_is_one_line(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "x.json"
    file.write_text("[]", "utf-8")
    code, out, err = run(capsys, "import", str(file))
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "holds no chat" in err
