"""Another model answers, chosen by its name, in the same chat."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from q35chat.chat.service import ModelEntry
from q35chat.chat.values import Turn
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.support import opened

ENTRIES = (
    ModelEntry("out", Path("out"), MODEL.name, f"{MODEL.name} · cpu · int4 · 2,048 slots"),
    ModelEntry("small", Path("small"), "small", f"{MODEL.name} · cpu · int8 · 512 slots"),
)


def workspace() -> ScriptedWorkspace:
    scripted = ScriptedWorkspace()
    scripted.models = lambda: ENTRIES
    return scripted


async def test_another_model_answers_in_the_same_chat_and_each_answer_has_its_name() -> None:
    async with opened(workspace()) as chat:
        await chat.ask("hello")
        await chat.press(*"/model small", "enter")
        await chat.hear("small answers from now on")
        await chat.until(lambda: chat.screen.session.available is not None)
        assert chat.screen.session.model is not None
        assert chat.screen.session.model.name == "small"
        await chat.ask("and again")
        names = [step.model for step in chat.conversation.steps if step.turn.role == "assistant"]
        assert names == [MODEL.name, "small"]


async def test_a_model_that_a_server_has_is_asked_for_and_not_loaded() -> None:
    scripted, gate = workspace(), threading.Event()
    cluster = ModelEntry("cluster", Path("cluster"), "qwen", "server · http://host/v1", remote=True)
    scripted.models = lambda: (*ENTRIES, cluster)
    async with opened(scripted) as chat:
        scripted.load_gate = gate
        await chat.press(*"/model cluster", "enter")
        await chat.see("asking the server…")
        gate.set()
        await chat.hear("cluster answers from now on")


async def test_a_model_is_chosen_from_a_list_that_marks_the_one_in_use() -> None:
    async with opened(workspace()) as chat:
        await chat.press(*"/model", "enter")
        await chat.see("● out")
        await chat.press("down", "enter")
        await chat.hear("small answers from now on")


async def test_a_chat_of_another_model_says_who_wrote_its_last_answer() -> None:
    scripted = workspace()
    conversation = scripted.add("old", [Turn("user", "q"), Turn("assistant", "a", finish="stop")])
    scripted.backend.model = replace(MODEL, name="newer")
    async with opened(scripted) as chat:
        await chat.open(conversation)
        await chat.hear(f"{MODEL.name} wrote the last answer; newer writes the next")


async def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    async with opened(workspace()) as chat:
        await chat.press(*"/model huge", "enter")
        await chat.hear("There is no model “huge”; out, small can be named; F9 exports one")
