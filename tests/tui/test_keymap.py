"""The user's own keys."""

from __future__ import annotations

import pytest

from q35chat.settings import Settings
from q35chat.tui.commands import BY_ID, COMMANDS, read_keymap
from tests.tui.support import opened


def test_a_command_is_named_as_behind_its_slash_or_by_its_id() -> None:
    keymap = read_keymap({"continue": "F9", "/new": "f10, ctrl+b", "scroll_up": "alt+up"})
    assert keymap.own == {"proceed": "f9", "new": "f10,ctrl+b", "scroll_up": "alt+up"}
    assert keymap.problems == ()
    assert keymap.label("new") == "F10"


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("nonsense", "f9", "there is no command “nonsense”"),
        ("new", "", "no key is given"),
        ("new", "ctrl-r", "“ctrl-r” is no key"),
        ("new", "shift+hello", "is no key"),
        ("new", "n", "“n” could not be typed any more"),
        ("new", "shift+n", "could not be typed"),
        ("new", "space", "could not be typed"),
        ("new", "enter", "Enter means something else"),
        ("new", "f5", "F5 means something else"),
    ],
)
def test_a_key_that_cannot_be_given_is_refused_with_the_reason(
    name: str, keys: str, words: str
) -> None:
    keymap = read_keymap({name: keys})
    assert keymap.own == {}
    assert words in keymap.problems[0]


def test_one_key_goes_to_one_command() -> None:
    keymap = read_keymap({"new": "f9", "export": "f9"})
    assert keymap.own == {"new": "f9"}
    assert "F9 is for new already" in keymap.problems[0]


def test_a_default_key_given_away_is_shown_for_nobody_else() -> None:
    keymap = read_keymap({"new": "alt+r"})
    assert keymap.label("new") == "Alt+R"
    assert keymap.keys(BY_ID["regenerate"]) == ""


def test_every_default_key_is_one_that_a_user_could_write() -> None:
    for command in COMMANDS:
        if command.keys:
            assert read_keymap({command.id: command.keys}).problems == ()


async def test_a_command_without_a_default_key_can_be_given_one() -> None:
    async with opened(settings=Settings(shortcuts={"summarise": "f9"})) as chat:
        await chat.press("f9")
        await chat.hear("There is nothing to sum up yet")


async def test_the_footer_and_the_help_show_the_users_own_keys() -> None:
    async with opened(settings=Settings(shortcuts={"quit": "f10"}), size=(120, 100)) as chat:
        assert "F10 quit" in chat.text
        await chat.press("f1")
        await chat.see("F10 /quit")
