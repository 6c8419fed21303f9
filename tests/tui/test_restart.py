"""A runtime that dies in the middle of an answer, over the real conversations and store."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import BundleError
from q35chat.store import Store
from tests.doubles.scripted_backend import PATIENCE_S, ScriptedBackend
from tests.tui.support import Chat, opened, picture_file


@dataclass
class Runtime:
    """Loads a new backend each time; the first dies at its tenth letter."""

    backends: list[ScriptedBackend] = field(default_factory=list)
    error: Exception | None = None
    gate: threading.Event | None = None

    def load(self) -> tuple[ScriptedBackend, ChatSettings]:
        assert self.gate is None or self.gate.wait(PATIENCE_S), "nobody opened the gate"
        if self.error is not None:
            raise self.error
        self.backends.append(ScriptedBackend())
        self.backends[-1].fails_at = 10 if len(self.backends) == 1 else None
        return self.backends[-1], ChatSettings()


@asynccontextmanager
async def died(runtime: Runtime, folder: Path) -> AsyncIterator[Chat]:
    """The application after the runtime died in the middle of its first answer."""
    with Store(folder) as store:
        async with opened(cast("Any", Workspace(store, runtime.load))) as chat:
            await chat.send("hello")
            await chat.see("The runtime died.")
            await chat.idle()
            yield chat


async def restarted(chat: Chat) -> None:
    await chat.press("f5")
    await chat.until(lambda: not chat.screen.panel.display and not chat.screen.session.loading)
    await chat.pilot.pause()


async def test_a_runtime_that_dies_leaves_the_chat_readable_and_says_why(tmp_path: Path) -> None:
    async with died(Runtime(), tmp_path) as chat:
        assert "hello" in chat.flat
        assert "Answer 1 t" in chat.flat
        assert "✗ The answer failed; the chat is safe" in chat.flat
        assert "F5 Restart the model" in chat.flat
        assert len(chat.screen.session.steps) == 2


async def test_the_restart_loads_the_model_anew_and_frees_the_dead_one(tmp_path: Path) -> None:
    runtime = Runtime()
    async with died(runtime, tmp_path) as chat:
        session = chat.screen.session.steps[0].id
        await restarted(chat)
        assert [backend.closed for backend in runtime.backends] == [True, False]
        assert chat.screen.session.steps[0].id == session
        assert "Answer 1 t" in chat.flat
        await chat.send("and now?")
        await chat.see("Answer 2 to: and now?")
        await chat.idle()
        assert len(runtime.backends[1].prompts) == 1


async def test_after_the_restart_the_broken_answer_can_be_continued(tmp_path: Path) -> None:
    async with died(Runtime(), tmp_path) as chat:
        await restarted(chat)
        await chat.press("ctrl+g")
        await chat.see("Answer 1 to: hello")
        await chat.idle()
        assert len(chat.screen.session.steps) == 2


async def test_a_restart_that_fails_keeps_the_chat_and_can_be_tried_again(tmp_path: Path) -> None:
    runtime = Runtime()
    async with died(runtime, tmp_path) as chat:
        runtime.error = BundleError("the device does not answer")
        await chat.press("f5")
        await chat.see("The model did not start again; the chat is safe")
        assert "the device does not answer" in chat.flat
        assert "Answer 1 t" in chat.flat
        runtime.error = None
        await restarted(chat)
        await chat.send("better?")
        await chat.see("Answer 2 to: better?")
        await chat.idle()


async def test_what_is_sent_while_the_model_restarts_waits_for_it(tmp_path: Path) -> None:
    runtime = Runtime()
    async with died(runtime, tmp_path) as chat:
        chat.screen.loader.restart()
        await chat.write("early")
        await chat.screen.turns.send()
        await chat.see("Answer 2 to: early")
        await chat.idle()
        assert len(runtime.backends) == 2


async def test_a_draft_survives_the_restart(tmp_path: Path) -> None:
    async with died(Runtime(), tmp_path) as chat:
        await chat.write("half a thought")
        await restarted(chat)
        assert chat.written == "half a thought"


async def test_a_picture_attached_while_the_model_restarts_goes_with_its_question(
    tmp_path: Path,
) -> None:
    runtime = Runtime()
    async with died(runtime, tmp_path) as chat:
        runtime.gate = threading.Event()
        await chat.press("f5")
        await chat.write("what is this?")
        chat.screen.draft.attach([picture_file(tmp_path)])
        await chat.press("enter")
        await chat.see("sends when the model is loaded")
        runtime.gate.set()
        await chat.until(lambda: len(chat.screen.session.steps) == 4)
        await chat.idle()
        question = chat.screen.session.steps[2].turn
        assert [picture.name for picture in question.attachments] == ["house.png"]
