"""Pictures while a model is on its way, and while they are being read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from q35chat.errors import CapacityError
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.screens.chat import Opening
from q35chat.tui.widgets.chips import Chip
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace
from tests.tui.on_the_way import Hold, paste, quiet, read, sent, stored
from tests.tui.support import Chat, opened, picture_file


async def test_a_picture_taken_away_while_the_model_loads_does_not_come_back_as_another(
    tmp_path: Path, gate: threading.Event
) -> None:
    files = (picture_file(tmp_path, "a.png"), picture_file(tmp_path, "b.png", (96, 96)))
    workspace = ScriptedWorkspace(load_gate=gate)
    async with opened(workspace, opening=Opening(None, files), loaded=False) as chat:
        await chat.see("b.png")
        await chat.click(next(iter(chat.screen.query(Chip))))
        await chat.until(lambda: "a.png" not in chat.flat)
        gate.set()
        await read(chat, "b.png")
        await chat.see("b.png 96×96")


async def test_a_picture_attached_after_another_was_taken_away_is_itself(
    tmp_path: Path, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace(load_gate=gate)
    async with opened(workspace, loaded=False) as chat:
        await paste(chat, picture_file(tmp_path, "a.png"))
        await chat.press("backspace")
        await chat.until(lambda: not chat.screen.composer.chips.chips)
        await paste(chat, picture_file(tmp_path, "b.png"))
        gate.set()
        await read(chat, "b.png")


async def test_a_question_with_a_picture_that_waits_for_a_restart_is_sent_with_it(
    tmp_path: Path, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        await chat.attach(picture_file(tmp_path, "old.png"))
        workspace.load_gate = gate
        chat.screen.loader.restart()
        await chat.write("what are these?")
        chat.screen.draft.attach([picture_file(tmp_path, "new.png")])
        await chat.press("enter")
        await chat.see("sends when the model is loaded")
        gate.set()
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        question = chat.conversation.steps[0].turn
        assert question.text == "what are these?"
        assert [picture.name for picture in question.attachments] == ["old.png", "new.png"]


async def test_a_restart_leaves_an_edit_as_it_is(gate: threading.Event) -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        await chat.ask("first words")
        await chat.press("ctrl+e")
        await chat.write(" and more")
        workspace.load_gate = gate
        chat.screen.loader.restart()
        gate.set()
        await chat.until(lambda: not chat.screen.session.loading)
        assert chat.written == "first words and more"
        await chat.press("enter")
        await chat.until(lambda: sent(chat) == ["first words and more"])


async def test_a_refused_first_question_survives_a_restart() -> None:
    refusal = CapacityError("the prompt needs 3,000 slots, 2,048 are there")
    workspace = ScriptedWorkspace([Reply(error=refusal)])
    async with opened(workspace) as chat:
        await chat.send("a long question")
        await chat.see("the prompt needs 3,000 slots")
        chat.screen.loader.restart()
        await chat.until(lambda: workspace.loads == 2 and not chat.screen.session.loading)
        await quiet(chat)
        assert chat.written == "a long question"


async def test_what_is_written_while_the_model_loads_is_kept_when_one_leaves(
    tmp_path: Path, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace(load_gate=gate)
    drafts = Drafts(tmp_path / "drafts.json")
    async with opened(workspace, drafts=drafts, loaded=False) as chat:
        await chat.press(*"wait")
        await chat.press("ctrl+q")
        gate.set()
    assert Drafts(tmp_path / "drafts.json").get("new") == "wait"


async def test_what_a_chat_is_started_with_comes_behind_its_draft(
    tmp_path: Path, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace(load_gate=gate)
    [norway] = stored(workspace, "Norway")
    drafts = Drafts(tmp_path / "drafts.json")
    drafts.put(norway.id, "half a thought")
    opening = Opening(norway.id, (picture_file(tmp_path),))
    async with opened(workspace, drafts=drafts, opening=opening, loaded=False) as chat:
        before = sent(chat)
        await chat.press(*"and more", "enter")
        await chat.see("sends when the model is loaded")
        gate.set()
        await read(chat, "house.png")
        await quiet(chat)
        assert chat.written == "half a thought\nand more"
        assert sent(chat) == before


async def test_pictures_without_a_text_are_a_draft_too(tmp_path: Path) -> None:
    workspace = ScriptedWorkspace()
    [norway, rome] = stored(workspace, "Norway", "Rome")
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        await chat.attach(picture_file(tmp_path))
        await chat.open(rome)
        await read(chat)
        await chat.open(norway)
        await read(chat, "house.png")
        chat.screen.loader.restart()
        await chat.until(lambda: workspace.loads == 2 and not chat.screen.session.loading)
        await read(chat, "house.png")


async def test_a_picture_being_read_when_the_chat_is_left_is_read_when_it_is_back(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    [norway, rome] = stored(workspace, "Norway", "Rome")
    hold(ScriptedConversation, "attach")
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        await paste(chat, picture_file(tmp_path))
        await chat.open(rome)
        gate.set()
        await quiet(chat)
        await read(chat)
        chat.screen.loader.open(norway.id)
        await read(chat, "house.png")


@pytest.mark.parametrize("keys", [("/think on", "enter"), ("", "ctrl+e", "escape")])
async def test_a_command_leaves_the_picture_that_is_being_read(
    chat: Chat, keys: tuple[str, ...], tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    await chat.ask("hello")
    hold(ScriptedConversation, "attach")
    await paste(chat, picture_file(tmp_path))
    await chat.press(*keys[0], *keys[1:])
    await chat.until(lambda: not chat.written)
    gate.set()
    await read(chat, "house.png")
