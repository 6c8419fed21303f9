from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import StoredWorkspace
from q35chat.commands.lines import LineChat
from q35chat.errors import CapacityError
from q35chat.store import Store
from tests.cli.scripted import Recorded, ScriptedBackend, Terminal, recorded, turn_events
from tests.vision.files import sample


def line_chat(backend: ScriptedBackend, seen: Recorded) -> LineChat:
    settings = ChatSettings(thinking=True, max_image_tokens=256)
    workspace = StoredWorkspace(Store(), lambda: (backend, settings))
    workspace.load()
    return LineChat(workspace.new(), workspace.new, seen.console)


def talk(backend: ScriptedBackend, lines: str) -> Recorded:
    seen = recorded()
    chat = line_chat(backend, seen)
    assert chat.loop(StringIO(lines)) == 0
    return seen


def test_every_line_is_a_question_and_the_turns_add_up() -> None:
    backend = ScriptedBackend(turn_events("Hi"))
    assert talk(backend, "one\n\n  \ntwo").out.getvalue() == "Hi\nHi\n"
    (first, settings), (second, _) = backend.asked
    assert [(turn.role, turn.text) for turn in first] == [("user", "one")]
    assert [turn.text for turn in second] == ["one", "Hi", "two"]
    assert second[1].token_ids == (7, 8, 9, 2)
    assert (settings.thinking, settings.max_image_tokens) == (True, 256)


def test_quit_leaves_at_once() -> None:
    backend = ScriptedBackend(turn_events("Hi"))
    talk(backend, "/quit\nnever asked\n")
    assert backend.asked == []


def test_a_picture_belongs_to_the_next_question_only(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(sample("PNG"))
    backend = ScriptedBackend(turn_events("Hi"))
    seen = talk(backend, f"/image '{tmp_path}/a b.png'\nwhat is it?\nand now?\n")
    assert "a b.png: 40 x 30 pixels, 64 tokens" in seen.err.getvalue()
    turns = backend.asked[1][0]
    assert [len(turn.attachments) for turn in turns] == [1, 0, 0]


def test_new_starts_over() -> None:
    backend = ScriptedBackend(turn_events("Hi"))
    talk(backend, "one\n/new\ntwo\n")
    assert [turn.text for turn in backend.asked[1][0]] == ["two"]


def test_what_was_said_is_kept_a_conversation_each() -> None:
    talk(ScriptedBackend(turn_events("Hi")), "one\ntwo\n/new\nthree\n/new\n")
    with Store() as store:
        assert [(kept.title, kept.turns) for kept in store.sessions()] == [("three", 1), ("one", 2)]


def test_a_prompt_that_does_not_fit_is_said_and_forgotten() -> None:
    backend = ScriptedBackend(error=CapacityError("prompt needs 9 slots"))
    seen = talk(backend, "one\ntwo\n")
    assert seen.err.getvalue().count("q35chat: prompt needs 9 slots\n") == 2
    assert [turn.text for turn in backend.asked[1][0]] == ["two"]


def test_a_line_that_only_looks_like_a_command_is_a_question() -> None:
    backend = ScriptedBackend(turn_events("Hi"))
    talk(backend, "/etc/passwd is what?\n")
    assert backend.asked[0][0][0].text == "/etc/passwd is what?"


def test_help_names_every_command() -> None:
    seen = talk(ScriptedBackend(), "/help\n")
    assert all(name in seen.err.getvalue() for name in ("/image", "/new", "/help", "/quit"))


def test_image_without_a_path_asks_for_one() -> None:
    assert "which picture?" in talk(ScriptedBackend(), "/image\n").err.getvalue()


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_ctrl_d_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[type[BaseException]] = [KeyboardInterrupt, EOFError]

    def typed(_: str) -> str:
        raise keys.pop(0)

    monkeypatch.setattr("builtins.input", typed)
    seen = recorded()
    chat = line_chat(ScriptedBackend(), seen)
    assert chat.loop(Terminal()) == 0
    assert "(Ctrl+D leaves)" in seen.err.getvalue()
    assert keys == []


def test_a_typed_word_that_is_no_command_is_said_and_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = iter(["/bogus now", "/etc/passwd is what?"])

    def typed(_: str) -> str:
        for line in lines:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", typed)
    seen = recorded()
    backend = ScriptedBackend(turn_events("Hi"))
    assert line_chat(backend, seen).loop(Terminal()) == 0
    assert "/bogus is no command" in seen.err.getvalue()
    assert [turns[0].text for turns, _ in backend.asked] == ["/etc/passwd is what?"]
