"""The message in an editor of the user's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from q35chat.tui import outside
from q35chat.tui.outside import Written, editor_command, write_outside
from tests.tui.support import Chat

_ADDS = "import sys; open(sys.argv[1], 'a').write(' and more\\n')"


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outside, "_TERMINAL", os.devnull)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def editor(folder: Path, program: str) -> dict[str, str]:
    """An environment with an editor that runs a program with the file's name."""
    script = folder / "my editor.py"
    script.write_text(program, "utf-8")
    return {"EDITOR": f"'{sys.executable}' '{script}'"}


def left(folder: Path) -> list[Path]:
    """Files of messages that are still there."""
    return list(folder.glob("q35chat-*/*"))


def test_the_editor_is_the_users_own_with_its_options() -> None:
    both = {"EDITOR": "nano", "VISUAL": "code --wait 'a b'"}
    assert editor_command(both) == ["code", "--wait", "a b"]
    assert editor_command({"VISUAL": "'", "EDITOR": "nano"}) == ["nano"]


def test_what_the_editor_wrote_comes_back_and_leaves_no_file(tmp_path: Path) -> None:
    environment = editor(tmp_path, _ADDS)
    assert write_outside("a thought", environment) == Written("a thought and more")
    assert not left(tmp_path)


@pytest.mark.parametrize(
    ("program", "words", "kept"),
    [
        ("raise SystemExit(3)", "ended with 3; the message is as it was", False),
        (f"{_ADDS}; raise SystemExit(4)", "what it wrote is in", True),
        ("import sys; open(sys.argv[1], 'wb').write(b'\\xff')", "did not work", False),
        ("import os, sys; os.unlink(sys.argv[1])", "did not work", False),
    ],
)
def test_an_editor_that_fails_loses_nothing(
    tmp_path: Path, program: str, words: str, kept: bool
) -> None:
    written = write_outside("a thought", editor(tmp_path, program))
    assert written.text == "a thought"
    assert words in written.problem
    assert [file.read_text("utf-8") for file in left(tmp_path)] == (
        ["a thought and more\n"] if kept else []
    )


def test_an_editor_that_is_not_there_is_named(tmp_path: Path) -> None:
    written = write_outside("a thought", {"EDITOR": "no-such-editor"})
    assert written.text == "a thought"
    assert "no-such-editor did not work" in written.problem
    assert not left(tmp_path)


async def test_two_keys_open_the_editor_with_all_that_was_typed_before_them(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat.app, "edit_outside", lambda text: Written(f"{text} and more"))
    await chat.ask("before")
    await chat.at_once(*"abc", "ctrl+x", "ctrl+e", *"!")
    assert chat.written == "abc and more!"
    await chat.press("ctrl+z", "ctrl+z")
    assert chat.written == "abc"


async def test_the_first_of_the_two_keys_alone_cuts_what_is_selected_and_nothing_else(
    chat: Chat,
) -> None:
    await chat.write("abc")
    await chat.press("ctrl+x")
    assert chat.written == "abc"
    await chat.press("shift+left", "ctrl+x")
    assert chat.written == "ab"
