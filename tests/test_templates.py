"""Prompt templates: how they are found and filled, in `ask`, line by line and on the screen."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings, Persona
from q35chat.chat.workspace import Workspace
from q35chat.commands.ask import AskOptions, ask_once
from q35chat.commands.lines import LineChat
from q35chat.errors import UsageError
from q35chat.settings import settings_path
from q35chat.settings.templates import (
    MOST_BYTES,
    named_template,
    templates,
    templates_folder,
    typed_template,
)
from q35chat.store import Store
from tests.cli.scripted import EventBackend, Recorded, loaded, recorded, turn_events

PERSONAS = (
    Persona("default", "", False),
    Persona("translator", "Translate.", None, 20, {"temperature": 0.2}),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = settings_path().parent / "templates"
    found.mkdir(parents=True)
    (found / "Review.md").write_text("Review this:\r\n\r\n$input\n\nName $inputs, $5 and $input.\n")
    (found / "haiku.txt").write_text("Write a haiku.\n")
    return found


def test_a_template_is_named_as_its_file_and_filled_with_the_input(folder: Path) -> None:
    (folder / "other.json").write_text("{}")
    assert templates_folder() == folder
    assert list(templates()) == ["review", "haiku"]
    filled = named_template("review").filled("a $input \\1")
    assert filled == "Review this:\n\na $input \\1\n\nName $inputs, $5 and a $input \\1."
    assert named_template("HAIKU").filled("On snow.") == "Write a haiku.\n\nOn snow."
    assert named_template("haiku").filled("") == "Write a haiku."
    assert named_template("haiku").head == "Write a haiku."


def test_an_unknown_template_is_refused_with_those_there_are(folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no template cook; review, haiku is there"):
        named_template("cook")


def test_what_cannot_be_a_template_is_refused_in_one_line(folder: Path) -> None:
    os.mkfifo(folder / "pipe.md")
    (folder / "bytes.md").write_bytes(b"\xff")
    (folder / "large.md").write_text("a" * (MOST_BYTES + 1))
    (folder / "link.md").symlink_to("nowhere")
    for name, said in (
        ("pipe", "is no file"), ("bytes", "is not UTF-8"), ("large", "is over the limit"),
        ("link", "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"{name}.md.*{said}"):
            named_template(name).filled("x")
        assert isinstance(named_template(name).head, str)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/review a b", "a b"),
        ("/Review\na\n b\n", "a\n b"),
        ("/review", ""),
        ("/reviews a", None),
        ("/review/x a", None),
        (" /review a", None),
        ("review a", None),
    ],
)
def test_a_text_names_a_template_by_its_first_word(text: str, found: str | None) -> None:
    typed = typed_template(text)
    assert (typed and typed[1]) == found


def asked(*options: object, **more: object) -> tuple[EventBackend, Recorded]:
    backend, seen = EventBackend(turn_events("Hi")), recorded()
    given = AskOptions(*options, model_dir=Path("m"), **more)  # type: ignore[arg-type]
    assert ask_once(given, seen.console, lambda _, __: loaded(backend)) == 0
    return backend, seen


def test_ask_fills_a_template_with_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    backend, _ = asked("On snow.", template="haiku")
    assert backend.asked[0][0][0].text == "Write a haiku.\n\nOn snow."
    backend, _ = asked(template="haiku")
    assert backend.asked[0][0][0].text == "Write a haiku."
    with pytest.raises(UsageError, match="there is no template cook"):
        ask_once(AskOptions("x", template="cook"), recorded().console)


def talk(lines: str, code: int = 0) -> tuple[EventBackend, str]:
    backend, seen = EventBackend(turn_events("Hi")), recorded()
    workspace = Workspace(
        Store(), lambda: (backend, ChatSettings(system_prompt="Old.")), personas=lambda: PERSONAS
    )
    workspace.load()
    chat = LineChat(workspace.new(), workspace.new, seen.console, workspace.personas)
    assert chat.follow(BytesIO(lines.encode())) == code
    return backend, seen.err.getvalue()


def test_a_template_is_a_command_line_by_line(folder: Path) -> None:
    backend, _ = talk("/haiku On snow.\n")
    assert backend.asked[0][0][0].text == "Write a haiku.\n\nOn snow."
    _, said = talk("/help\n")
    assert "/haiku TEXT  Write a haiku." in said
    (folder / "haiku.txt").write_bytes(b"\xff")
    backend, said = talk("/haiku On snow.\n", code=1)
    assert not backend.asked
    assert "is not UTF-8" in said


def test_a_persona_is_taken_line_by_line() -> None:
    backend, said = talk("/persona translator\nHello\n/persona default\nHello\n")
    (_, settings), (_, back) = backend.asked
    assert (settings.system_prompt, settings.thinking_budget) == ("Translate.", 20)
    assert settings.sampling.temperature == 0.2
    assert (back.system_prompt, back.thinking) == ("", False)
    assert "translator: thinks up to 20 tokens · temperature 0.2 · “Translate.”" in said
    _, said = talk("/persona\n")
    assert "default: does not think\ntranslator: thinks" in said
    _, said = talk("/persona cook\n", code=1)
    assert "there is no persona cook; default, translator is there" in said
