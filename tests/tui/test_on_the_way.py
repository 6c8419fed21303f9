"""What is on its way when keys are pressed: a model, another chat, a picture that is being read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import events

from q35chat.errors import CapacityError, StoreError
from q35chat.tui.preferences import Drafts
from q35chat.tui.screens.chat import Opening
from q35chat.tui.widgets.chips import Chip
from tests.doubles.scripted_workspace import (
    PATIENCE_S,
    Gate,
    Reply,
    ScriptedConversation,
    ScriptedWorkspace,
    dialogue,
)
from tests.tui.support import Chat, opened, picture_file


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


Hold = Callable[[Any, str], None]


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> Hold:
    """From now on calls of a method wait for the gate."""

    def held(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def wait(*arguments: Any) -> Any:
            assert gate.wait(PATIENCE_S), "nobody opened the gate"
            return call(*arguments)

        monkeypatch.setattr(owner, name, wait)

    return held


def pictures(chat: Chat) -> list[str]:
    return [picture.name for picture in chat.screen.composer.chips.attachments]


def written(chat: Chat) -> str:
    return chat.screen.composer.editor.text


def sent(chat: Chat) -> list[str]:
    """The questions of all conversations."""
    histories = [item.history for item in chat.workspace.conversations.values()]
    return [step.turn.text for history in histories for step in history if step.turn.role == "user"]


async def read(chat: Chat, *names: str) -> None:
    await chat.until(lambda: pictures(chat) == [*names])
    assert not chat.screen.composer.chips.reading


async def quiet(chat: Chat) -> None:
    """Wait until everything that was begun has come to the screen."""
    await chat.app.workers.wait_for_complete()
    await chat.pilot.pause()
    await chat.idle()


async def paste(chat: Chat, path: Path) -> None:
    chat.screen.composer.editor.post_message(events.Paste(str(path)))
    await chat.until(lambda: bool(chat.screen.composer.chips.chips))


def stored(workspace: ScriptedWorkspace, *titles: str) -> list[ScriptedConversation]:
    return [workspace.add(title, dialogue(2)) for title in titles]


# -- pictures while a model is on its way


async def test_a_picture_taken_away_while_the_model_loads_does_not_come_back_as_another(
    tmp_path: Path, gate: threading.Event
) -> None:
    files = (picture_file(tmp_path, "a.png"), picture_file(tmp_path, "b.png", (96, 96)))
    workspace = ScriptedWorkspace(load_gate=gate)
    async with opened(workspace, opening=Opening(None, files), loaded=False) as chat:
        await chat.see("b.png")
        await chat.pilot.click(next(iter(chat.screen.query(Chip))))
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
        chat.screen.attaching.add([picture_file(tmp_path, "old.png")])
        await read(chat, "old.png")
        workspace.load_gate = gate
        chat.screen.loader.restart()
        await chat.write("what are these?")
        chat.screen.attaching.add([picture_file(tmp_path, "new.png")])
        await chat.press("enter")
        await chat.see("sends when the model is loaded")
        gate.set()
        await chat.until(lambda: len(chat.conversation.history) == 2)
        question = chat.conversation.history[0].turn
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
        await chat.until(lambda: not chat.screen.loader.running)
        assert written(chat) == "first words and more"
        await chat.press("enter")
        await chat.until(lambda: sent(chat) == ["first words and more"])


async def test_a_refused_first_question_survives_a_restart() -> None:
    refusal = CapacityError("the prompt needs 3,000 slots, 2,048 are there")
    workspace = ScriptedWorkspace([Reply(error=refusal)])
    async with opened(workspace) as chat:
        await chat.write("a long question")
        await chat.press("enter")
        await chat.see("the prompt needs 3,000 slots")
        chat.screen.loader.restart()
        await chat.until(lambda: workspace.loads == 2 and not chat.screen.loader.running)
        await quiet(chat)
        assert written(chat) == "a long question"


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
        assert written(chat) == "half a thought\nand more"
        assert sent(chat) == before


# -- pictures that are being read


async def test_pictures_without_a_text_are_a_draft_too(tmp_path: Path) -> None:
    workspace = ScriptedWorkspace()
    [norway, rome] = stored(workspace, "Norway", "Rome")
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        chat.screen.attaching.add([picture_file(tmp_path)])
        await read(chat, "house.png")
        chat.screen.loader.open(rome.id)
        await chat.until(lambda: chat.screen.ready is rome)
        await read(chat)
        chat.screen.loader.open(norway.id)
        await chat.until(lambda: chat.screen.ready is norway)
        await read(chat, "house.png")
        chat.screen.loader.restart()
        await chat.until(lambda: workspace.loads == 2 and not chat.screen.loader.running)
        await read(chat, "house.png")


async def test_a_picture_being_read_when_the_chat_is_left_is_read_when_it_is_back(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    [norway, rome] = stored(workspace, "Norway", "Rome")
    hold(ScriptedConversation, "attach")
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        await paste(chat, picture_file(tmp_path))
        chat.screen.loader.open(rome.id)
        await chat.until(lambda: chat.screen.ready is rome)
        gate.set()
        await quiet(chat)
        await read(chat)
        chat.screen.loader.open(norway.id)
        await read(chat, "house.png")


@pytest.mark.parametrize("keys", [("/think on", "enter"), ("", "ctrl+e", "escape")])
async def test_a_command_leaves_the_picture_that_is_being_read(
    keys: tuple[str, ...], tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    async with opened() as chat:
        await chat.ask("hello")
        hold(ScriptedConversation, "attach")
        await paste(chat, picture_file(tmp_path))
        await chat.press(*keys[0], *keys[1:])
        await chat.until(lambda: not written(chat))
        gate.set()
        await read(chat, "house.png")


# -- nothing is sent that nobody sent


async def test_a_queue_without_its_only_picture_sends_nothing(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    hold(ScriptedConversation, "attach")
    async with opened() as chat:
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("backspace")
        await chat.until(lambda: not chat.screen.sending.queued)
        assert "sends when" not in chat.flat
        gate.set()
        await quiet(chat)
        assert not sent(chat)


async def test_another_chat_sends_neither_the_queue_nor_its_own_draft(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    async with opened(workspace) as chat:
        before = sent(chat)
        await chat.write("for later")
        chat.screen.loader.open(norway.id)
        await chat.until(lambda: chat.screen.ready is norway)
        hold(ScriptedConversation, "attach")
        await chat.write("what is it?")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("ctrl+n")
        await chat.until(lambda: chat.screen.ready is not norway)
        gate.set()
        await quiet(chat)
        assert sent(chat) == before
        assert written(chat) == "for later"


async def test_a_new_chat_after_an_empty_queue_stays_empty(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    async with opened() as chat:
        await chat.ask("hello")
        hold(ScriptedConversation, "attach")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        first = chat.conversation
        await chat.press("ctrl+n")
        await chat.until(lambda: chat.screen.ready not in {None, first})
        gate.set()
        await quiet(chat)
        assert sent(chat) == ["hello"]


async def test_making_room_for_a_text_that_is_gone_sends_nothing() -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    norway.used = 2_000
    async with opened(workspace, opening=Opening(norway.id)) as chat:
        before = sent(chat)
        await chat.write("word " * 60)
        await chat.see("✗ this turn needs")
        await chat.press("enter")
        await chat.see("This turn does not fit")
        chat.screen.composer.editor.clear()
        await chat.press("f6")
        await chat.hear("Left out")
        await quiet(chat)
        assert sent(chat) == before


async def test_a_folded_paste_of_nothing_but_blanks_is_no_message() -> None:
    async with opened() as chat:
        chat.screen.composer.editor.post_message(events.Paste(" \n" * 3_000))
        await chat.see("[paste #1")
        await chat.press("enter")
        await quiet(chat)
        assert not sent(chat)


@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+e"])
async def test_what_is_done_instead_ends_the_queue(
    key: str, tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    async with opened() as chat:
        await chat.ask("hello")
        hold(ScriptedConversation, "attach")
        await chat.write("what is it?")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press(key)
        gate.set()
        await quiet(chat)
        assert sent(chat) == ["hello"]
        await chat.press("escape")
        await chat.until(lambda: written(chat) == "what is it?")
        await read(chat, "house.png")


# -- keys while another chat is on its way


async def choose_norway(chat: Chat) -> None:
    """Open it from the list; it is the newest one there."""
    await chat.press("ctrl+l")
    await chat.see("Norway")
    await chat.press("enter")
    await chat.until(lambda: chat.screen.loader.opening)


async def test_a_question_asked_while_a_chat_is_opened_is_for_that_chat_and_can_be_stopped(
    gate: threading.Event, hold: Hold
) -> None:
    tokens = Gate()
    workspace = ScriptedWorkspace([Reply(), Reply("one two three", gate=tokens)])
    async with opened(workspace) as chat:
        await chat.ask("hello")
        [norway] = stored(workspace, "Norway")
        first = chat.conversation
        hold(workspace, "open")
        await choose_norway(chat)
        await chat.press(*"how far?", "enter")
        await chat.see("sends when the chat is open")
        gate.set()
        await chat.until(lambda: chat.screen.generation.running)
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation is norway
        assert (norway.cancels, first.cancels) == (1, 0)
        assert [step.turn.text for step in norway.history[4:5]] == ["how far?"]
        assert len(first.history) == 2


async def test_a_text_written_while_a_chat_is_opened_is_for_that_chat(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        await chat.ask("hello")
        [norway] = stored(workspace, "Norway")
        first = chat.conversation
        await chat.write("old thought")
        hold(workspace, "open")
        await choose_norway(chat)
        await chat.press(*"fjord")
        await paste(chat, picture_file(tmp_path))
        gate.set()
        await chat.until(lambda: chat.screen.ready is norway)
        assert written(chat) == "fjord"
        await read(chat, "house.png")
        chat.screen.loader.open(first.id)
        await chat.until(lambda: chat.screen.ready is first)
        assert written(chat) == "old thought"
        await read(chat)


async def test_letters_before_control_n_stay_and_letters_after_it_go_along() -> None:
    async with opened() as chat:
        await chat.ask("hello")
        first = chat.conversation
        await chat.at_once(*"ab", "ctrl+n", *"cd")
        await chat.until(lambda: chat.screen.ready not in {None, first})
        await chat.until(lambda: written(chat) == "cd")
        chat.screen.loader.open(first.id)
        await chat.until(lambda: chat.screen.ready is first)
        assert written(chat) == "ab"


async def test_enter_right_before_control_n_never_sends_the_draft_of_the_new_chat() -> None:
    workspace = ScriptedWorkspace()
    [norway] = stored(workspace, "Norway")
    async with opened(workspace) as chat:
        await chat.write("for later")
        chat.screen.loader.open(norway.id)
        await chat.until(lambda: chat.screen.ready is norway)
        await chat.at_once(*"hm?", "enter", "ctrl+n")
        await quiet(chat)
        assert "for later" not in sent(chat)


@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+e", "ctrl+g", "ctrl+n", "ctrl+l", "ctrl+t", "f2"])
async def test_commands_for_a_chat_wait_until_it_is_open(
    key: str, gate: threading.Event, hold: Hold
) -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        await chat.ask("hello")
        first = chat.conversation
        settings = first.settings()
        hold(workspace, "new")
        await chat.press("ctrl+n", key)
        await chat.hear("The chat is still being opened")
        assert len(chat.app.screen_stack) == 2
        gate.set()
        await chat.until(lambda: chat.screen.ready not in {None, first})
        assert (sent(chat), first.settings()) == (["hello"], settings)


async def test_a_chat_that_cannot_be_opened_takes_no_words_with_it(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    workspace = ScriptedWorkspace()

    def gone(_: str) -> None:
        assert gate.wait(PATIENCE_S), "nobody opened the gate"
        raise StoreError("The chat was deleted by another q35chat. Start a new one.")

    async with opened(workspace) as chat:
        await chat.ask("hello")
        stored(workspace, "Norway")
        before, first = sent(chat), chat.conversation
        await chat.write("old thought")
        monkeypatch.setattr(workspace, "open", gone)
        await choose_norway(chat)
        await chat.press(*"fjord", "enter")
        gate.set()
        await chat.hear("deleted by another q35chat")
        await chat.until(lambda: chat.screen.ready is first)
        assert written(chat) == "old thought\nfjord"
        await quiet(chat)
        assert sent(chat) == before


async def test_a_chat_chosen_while_a_queued_question_begins_waits_for_its_answer(
    tmp_path: Path, gate: threading.Event, hold: Hold
) -> None:
    tokens = Gate()
    workspace = ScriptedWorkspace([Reply("one two three", gate=tokens)])
    stored(workspace, "Norway")
    hold(ScriptedConversation, "attach")
    async with opened(workspace) as chat:
        first = chat.conversation
        await chat.write("what is it?")
        await paste(chat, picture_file(tmp_path))
        await chat.press("enter")
        await chat.see("sends when the picture is read")
        await chat.press("ctrl+l")
        await chat.see("Norway")
        gate.set()
        await chat.until(lambda: chat.screen.generation.running)
        await chat.press("enter")
        await chat.hear("The answer is still being written")
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation is first
        assert first.cancels == 1
