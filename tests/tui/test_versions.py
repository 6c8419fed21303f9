"""The versions of a chat that edits and retries leave: all of them are reached, each with its own
numbers. A scripted model under the real conversation and store."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from q35chat.chat.values import Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import CapacityError
from q35chat.settings import Settings
from q35chat.store import Store
from q35chat.tui.widgets.transcript import PAGE
from tests.chat.scripted_chat import SETTINGS
from tests.doubles.scripted_backend import Reply, ScriptedBackend
from tests.doubles.scripted_backend import Reply as WholeReply
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, Chat, opened

LEFT, RIGHT = "alt+left", "alt+right"


class Counted:
    """Numbers its answers, so that no two are the same; each is longer than the one before."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, _: Sequence[Turn]) -> Reply:
        self.made += 1
        return Reply("no. " * self.made + str(self.made))


@asynccontextmanager
async def chatting(
    folder: Path, settings: Settings | None = None, backend: ScriptedBackend | None = None
) -> AsyncIterator[Chat]:
    model = backend or ScriptedBackend(Counted())
    with Store(folder / "chats") as store:
        workspace = Workspace(store, lambda: (model, SETTINGS), reads_ahead=False)
        async with opened(cast("Any", workspace), settings=settings) as chat:
            yield chat


async def turn(chat: Chat, *keys: str) -> None:
    """Press keys that begin a turn, and wait for its end."""
    before = [step.id for step in chat.screen.session.steps[-1:]]
    await chat.press(*keys)
    await chat.until(lambda: [step.id for step in chat.screen.session.steps[-1:]] != before)
    await chat.idle()


async def ask(chat: Chat, text: str) -> None:
    await chat.write(text)
    await turn(chat, "enter")


async def edit(chat: Chat, text: str, presses: int = 1) -> None:
    """Put `text` in the place of the last question but `presses - 1`."""
    await chat.press(*["ctrl+e"] * presses)
    chat.screen.composer.editor.put("")
    await ask(chat, text)


def questions(chat: Chat) -> list[str]:
    return [step.turn.text for step in chat.screen.session.steps if step.turn.role == "user"]


def version(chat: Chat) -> str:
    """The only mark on screen, or nothing."""
    marks = re.findall(r"version \d+ of \d+", chat.flat)
    assert len(marks) <= 1
    return marks[0] if marks else ""


async def walk(chat: Chat, key: str) -> list[tuple[str, list[str], str]]:
    """Go round with a key until the same version is there again: all that were on screen."""
    seen: list[tuple[str, list[str], str]] = []
    while True:
        here = (version(chat), questions(chat), chat.screen.session.steps[-1].turn.text)
        if here in seen:
            assert here == seen[0]
            return seen
        assert all(text in chat.flat for text in (*here[1], here[2]))
        seen.append(here)
        await chat.press(key)
        await chat.pilot.pause()


async def test_an_edited_question_is_reached_after_the_first_was_answered_again(
    tmp_path: Path,
) -> None:
    async with chatting(tmp_path) as chat:
        await chat.press("ctrl+n")
        await ask(chat, "Count to 3")
        assert version(chat) == ""
        await edit(chat, "Count to 4")
        assert version(chat) == "version 2 of 2"
        await chat.press(LEFT)
        assert questions(chat) == ["Count to 3"]
        await turn(chat, "alt+r")
        assert version(chat) == "version 3 of 3"
        seen = await walk(chat, RIGHT)
        assert [(mark, asked) for mark, asked, _ in seen] == [
            ("version 3 of 3", ["Count to 3"]),
            ("version 1 of 3", ["Count to 3"]),
            ("version 2 of 3", ["Count to 4"]),
        ]
        assert await walk(chat, LEFT) == [seen[0], seen[2], seen[1]]
        assert "Alt+Left Alt+Right" in chat.flat


async def test_the_first_line_of_a_chat_is_reached_from_below_its_edit(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, "One")
        await ask(chat, "Hello")
        await edit(chat, "Count to 7", presses=2)
        await ask(chat, "Count to 8")
        await turn(chat, "alt+r")
        seen = await walk(chat, RIGHT)
        assert [(mark, asked) for mark, asked, _ in seen] == [
            ("version 3 of 3", ["Count to 7", "Count to 8"]),
            ("version 1 of 3", ["One", "Hello"]),
            ("version 2 of 3", ["Count to 7", "Count to 8"]),
        ]


async def test_a_version_without_an_answer_has_the_mark_under_its_question(tmp_path: Path) -> None:
    backend = ScriptedBackend(Counted())
    async with chatting(tmp_path, backend=backend) as chat:
        await ask(chat, "One")
        backend.fails_at = 0
        await edit(chat, "Two")
        await chat.press("escape")
        assert questions(chat) == ["Two"]
        assert len(chat.screen.transcript.views) == 1
        assert version(chat) == "version 2 of 2"
        await chat.press(LEFT)
        assert (version(chat), questions(chat)) == ("version 1 of 2", ["One"])


async def test_a_chat_with_one_version_says_so(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.press(LEFT)
        await chat.hear("There is only one version; a retry or an edit makes another")
        await ask(chat, "One")
        assert version(chat) == ""


async def test_the_mark_names_no_keys_that_are_not_there(tmp_path: Path) -> None:
    keys = {"branch_forward": LEFT}
    async with chatting(tmp_path, Settings(shortcuts=keys)) as chat:
        await ask(chat, "One")
        await turn(chat, "alt+r")
        assert "version 2 of 2 Alt+Left" in chat.flat
        assert "Alt+Right" not in chat.flat


async def test_a_version_much_shorter_or_longer_than_the_window_is_shown_at_its_end() -> None:
    workspace = ScriptedWorkspace()
    stored = workspace.add("A long one", dialogue(60))
    async with opened(workspace) as chat:
        await chat.press("ctrl+l", "enter")
        await chat.until(lambda: chat.screen.session.conversation is stored)
        await chat.see("Answer number 60")
        assert chat.screen.transcript.hidden_before == 120 - PAGE
        stored.branch_from(0, Turn("assistant", "Another answer."))
        await chat.press(RIGHT)
        await chat.see("Another answer.")
        assert "version 2 of 2" in chat.flat
        assert "earlier turns" not in chat.flat
        await chat.press(RIGHT)
        await chat.see("Answer number 60")
        assert len(chat.screen.transcript.views) == PAGE


def numbers(chat: Chat) -> tuple[str, str]:
    """Tokens and speed beside the chat; they are those under its last answer."""
    told: list[tuple[str, str]] = re.findall(r"([\d.,]+ tok/s)  ([\d,]+ token)s? ", chat.text)
    under = re.findall(r"↓([\d,]+)  ([\d.,]+ tok/s)", chat.text)
    assert [(rate, f"{made} token") for made, rate in under[-1:]] == told
    return told[0]


async def test_each_version_and_each_chat_shows_its_own_numbers(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, "One")
        first = numbers(chat)
        await turn(chat, "alt+r")
        second = numbers(chat)
        assert first != second
        await chat.press(LEFT)
        await chat.see("version 1 of 2")
        assert numbers(chat) == first
        await chat.press(RIGHT)
        await chat.see("version 2 of 2")
        assert numbers(chat) == second
        await chat.press("ctrl+n")
        await chat.until(lambda: not chat.screen.session.steps and "tok/s" not in chat.text)
        assert "no steps yet" in chat.text
        await chat.press("ctrl+l")
        await chat.see("One")
        await chat.press("enter")
        await chat.until(lambda: bool(chat.screen.session.steps) and "tok/s" in chat.text)
        assert numbers(chat) == second


async def test_same_answers_have_their_own_numbers() -> None:
    replies = [WholeReply("the same", wall_ms=(10.0,)), WholeReply("the same", wall_ms=(40.0,))]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await chat.ask("One")
        await turn(chat, "alt+r")
        assert numbers(chat)[0] == "25.0 tok/s"
        await chat.press(LEFT)
        await chat.see("version 1 of 2")
        assert numbers(chat)[0] == "100 tok/s"


@pytest.mark.parametrize("size", [(120, 36), NARROW])
async def test_a_turn_that_slows_down_ends_with_the_same_speed_everywhere(
    size: tuple[int, int],
) -> None:
    walls = (*[10.0] * 60, *[50.0] * 20)
    reply = WholeReply("x" * len(walls), wall_ms=walls, token_size=1)
    async with opened(ScriptedWorkspace([reply]), size=size) as chat:
        await chat.ask("Count")
        assert re.findall(r"[\d.]+ tok/s", chat.text) == ["50.0 tok/s"] * 2


async def test_a_turn_that_failed_leaves_the_numbers_of_what_is_on_screen() -> None:
    refusal = CapacityError("It does not fit.")
    replies = [WholeReply("fine", wall_ms=(10.0,)), WholeReply(error=refusal)]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await chat.ask("One")
        before = numbers(chat)
        await chat.send("Two")
        await chat.see("does not fit")
        await chat.idle()
        assert numbers(chat) == before


async def rewrite(chat: Chat, text: str, presses: int = 1) -> None:
    """Put `text` in the place of the last answer but `presses - 1`."""
    await chat.press(*["alt+a"] * presses)
    await chat.see("editing answer")
    chat.screen.composer.editor.put("")
    await chat.write(text)
    await turn(chat, "enter")


async def test_an_answer_that_was_changed_is_what_the_model_said(tmp_path: Path) -> None:
    model = ScriptedBackend(Counted())
    async with chatting(tmp_path, backend=model) as chat:
        await ask(chat, "Count to 3")
        await chat.write("for later")
        await rewrite(chat, "1, 2, 3")
        assert version(chat) == "version 2 of 2"
        assert chat.written == "for later"
        assert "1, 2, 3" in chat.flat
        chat.screen.composer.editor.put("")
        await ask(chat, "And back?")
        said = [(turn.role, turn.text) for turn in model.prompts[-1]]
        assert said == [("user", "Count to 3"), ("assistant", "1, 2, 3"), ("user", "And back?")]
        await chat.press(LEFT)
        assert chat.screen.session.steps[-1].turn.text == "no. 1"


async def test_an_answer_that_was_changed_is_gone_on_with(tmp_path: Path) -> None:
    model = ScriptedBackend(Counted())
    async with chatting(tmp_path, backend=model) as chat:
        await ask(chat, "Count to 3")
        await rewrite(chat, "1, 2,")
        await chat.press("ctrl+g")
        await chat.until(lambda: len(model.prompts) == 2)
        await chat.idle()
        assert [turn.text for turn in model.prompts[-1]] == ["Count to 3", "1, 2,"]
        assert chat.screen.session.steps[-1].turn.text.startswith("1, 2,")


async def test_an_earlier_answer_is_changed_too_and_none_is_empty(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, "one")
        await ask(chat, "two")
        await chat.press("alt+a", "alt+a")
        await chat.see("editing answer 1 of 2")
        chat.screen.composer.editor.put("")
        await chat.press("enter")
        await chat.hear("An answer needs a text")
        await chat.write("/help")
        await turn(chat, "enter")
        assert [step.turn.text for step in chat.screen.session.steps] == ["one", "/help"]
        await chat.press("alt+a")
        await chat.see("editing answer 1 of 1")
        await chat.press("escape")
        await chat.until(lambda: "editing" not in chat.flat)


async def test_a_version_is_chosen_from_the_tree_of_all(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, "first")
        await ask(chat, "second")
        await turn(chat, "alt+r")
        await chat.press("alt+up")
        await chat.see("All versions of this chat")
        for words in ("you first", "model no. 1", "you second", "model no. no. 2"):
            assert words in chat.flat
        await chat.press("up", "enter")
        await chat.until(lambda: chat.screen.session.steps[-1].turn.text == "no. no. 2")
        await chat.see("version 1 of 2")
