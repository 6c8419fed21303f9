"""Going on as a persona of the settings file."""

from __future__ import annotations

from q35chat.chat.values import DEFAULTS, Persona
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened

PERSONAS = (
    Persona(DEFAULTS, "", False),
    Persona("translator", "Translate into Chinese.", False, None, {"temperature": 0.2}),
    Persona("coder", None, None, 200),
)


def workspace() -> ScriptedWorkspace:
    scripted = ScriptedWorkspace()
    scripted.personas = lambda: PERSONAS
    return scripted


async def test_a_persona_is_taken_by_its_name_and_left_for_the_defaults() -> None:
    async with opened(workspace()) as chat:
        await chat.press(*"/persona translator", "enter")
        await chat.hear("translator: does not think · temperature 0.2 · “Translate into Chinese.”")
        settings = chat.conversation.settings()
        assert (settings.system_prompt, settings.sampling.temperature) == (
            "Translate into Chinese.", 0.2,
        )  # fmt: skip
        await chat.press(*"/persona default", "enter")
        await chat.hear("default: does not think")
        assert chat.conversation.settings().system_prompt == ""


async def test_a_persona_is_chosen_from_a_list_that_marks_the_one_in_use() -> None:
    async with opened(workspace()) as chat:
        await chat.press(*"/persona", "enter")
        await chat.see("● default")
        await chat.press("down", "down", "enter")
        await chat.see("thinking on, at most 200 tokens")


async def test_an_unknown_persona_is_refused_with_those_there_are(chat: Chat) -> None:
    await chat.press(*"/persona cook", "enter")
    await chat.hear("There is no persona “cook”; none is there; more begin with [persona.NAME]")
