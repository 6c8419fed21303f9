"""Personas and defaults of the settings file, and how chats begin with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings, Persona, SamplingSettings
from q35chat.commands.ask import AskOptions, ask_once
from q35chat.commands.personas import changes_for, check_persona, new_chat, personas_of
from q35chat.errors import UsageError
from q35chat.settings import PersonaEntry, Settings, change_settings, load_settings
from tests.cli.scripted import EventBackend, loaded, recorded, turn_events

FILE = """\
system = "Be brief."
default_persona = "coder"

[sampling]
top_k = 20

[persona.translator]
system = "Translate into Chinese."
temperature = 0.2
thinking = false

[persona.coder]
thinking_budget = 200
"""


def read(folder: Path, text: str) -> Settings:
    path = folder / "settings.toml"
    path.write_text(text, "utf-8")
    return load_settings(path)


def test_the_file_has_personas_and_how_new_chats_begin(tmp_path: Path) -> None:
    settings = read(tmp_path, FILE)
    assert (settings.system, settings.sampling) == ("Be brief.", {"top_k": 20})
    assert settings.persona == {
        "translator": PersonaEntry("Translate into Chinese.", False, None, {"temperature": 0.2}),
        "coder": PersonaEntry(None, None, 200),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[persona.x]\nsistem = 1", "line 2: sistem is no setting of a persona; the settings of a"),
        ("[persona.x]\nthinking = 1", "line 2: thinking must be true or false, not 1"),
        ("[persona.x]\nthinking_budget = 0", "line 2: thinking_budget must be at least 1, not 0"),
        ("[persona.x]\ntemperature = 9", "line 2: temperature must be a number from 0 to 5, not 9"),
        ("[persona.x]\ntop_k = 1.5", "line 2: top_k must be a number from 0 to"),
        ("[sampling]\nheat = 1", "line 2: heat is no sampling option; they are temperature"),
        ('default_persona = "x"', "line 1: default_persona names x, and there is no such"),
        ("persona = 1", "line 1: persona must be [persona.NAME], not 1"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)


def test_a_new_chat_begins_with_the_persona_over_the_file_over_the_checkpoint(
    tmp_path: Path,
) -> None:
    settings, own = read(tmp_path, FILE), SamplingSettings(temperature=0.7, top_p=0.8)
    assert new_chat(settings, own, "translator") == ChatSettings(
        sampling=replace(own, temperature=0.2, top_k=20),
        system_prompt="Translate into Chinese.",
    )
    coder = new_chat(settings, own, None)
    assert (coder.system_prompt, coder.thinking, coder.thinking_budget) == ("Be brief.", True, 200)
    assert [persona.name for persona in personas_of(settings)] == ["translator", "coder"]


def test_a_persona_that_the_file_does_not_have_is_refused_with_those_it_has(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"--persona cook is not .* translator, coder"):
        check_persona("cook", read(tmp_path, FILE))


def test_ask_begins_as_the_persona_says_and_an_opened_chat_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read(tmp_path, FILE)
    monkeypatch.setattr("q35chat.settings.load_settings", lambda: settings)
    backend = EventBackend(turn_events("Hi"))
    options = AskOptions("Hello", model_dir=Path("model"), persona="translator")
    assert ask_once(options, recorded().console, lambda _, __: loaded(backend)) == 0
    assert backend.asked[0][1].system_prompt == "Translate into Chinese."
    with pytest.raises(UsageError, match="--persona is for a new chat"):
        ask_once(replace(options, continues=True), recorded().console)


def test_what_a_persona_does_not_say_stays_as_it_is() -> None:
    before = ChatSettings(system_prompt="Old.", thinking=True, thinking_budget=9)
    assert Persona("x").over(before) == before
    assert Persona("x", thinking=False).over(before) == before.with_thinking(False)


def test_new_chats_begin_as_a_chat_was_set_once_it_is_kept_for_all(tmp_path: Path) -> None:
    path, own = tmp_path / "settings.toml", SamplingSettings(temperature=0.7, top_p=0.8)
    path.write_text("# mine\nthinking = true\n[sampling]\ntemperature = 0.2\ntop_k = 5\n", "utf-8")
    chat = ChatSettings(
        sampling=replace(own, top_k=9, seed=3),
        system_prompt="Be brief.\nBe kind.",
        thinking_budget=90,
        max_new_tokens=400,
        reasoning_effort="low",
        preserve_thinking=False,
        max_image_tokens=64,
    )
    settings = change_settings(changes_for(chat, own), path)
    assert new_chat(settings, own, None) == chat
    assert new_chat(settings, replace(own, temperature=0.9), None).sampling.temperature == 0.9
    assert path.read_text("utf-8").startswith("# mine\n")
    change_settings(changes_for(ChatSettings(sampling=own), own), path)
    assert load_settings(path) == Settings()
