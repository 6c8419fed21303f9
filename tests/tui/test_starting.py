from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from textual.color import Color
from textual.css.stylesheet import Stylesheet

from q35chat.errors import BundleError
from q35chat.settings import Settings
from q35chat.tui.app import ChatApp
from q35chat.tui.screens.chat import Opening
from q35chat.tui.screens.help import HelpScreen
from q35chat.tui.terminal import apart
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.support.imports import ROOT
from tests.tui.support import NARROW, opened, picture_file


async def test_one_can_type_and_send_while_the_model_loads() -> None:
    gate = threading.Event()
    async with opened(ScriptedWorkspace(load_gate=gate), loaded=False) as chat:
        await chat.see("The model is loading. You can write already.")
        await chat.press(*"hello")
        assert chat.written == "hello"
        await chat.press("enter")
        await chat.see("sends when the model is loaded")
        gate.set()
        await chat.see("A short answer.")
        await chat.idle()
        assert chat.conversation.steps[0].turn.text == "hello"


async def test_a_queued_message_can_be_taken_back() -> None:
    gate = threading.Event()
    async with opened(ScriptedWorkspace(load_gate=gate), loaded=False) as chat:
        await chat.press(*"hello", "enter")
        await chat.see("sends when")
        await chat.press("escape")
        gate.set()
        await chat.until(lambda: chat.screen.session.available is not None)
        await chat.see("this turn needs")
        assert not chat.conversation.steps
        assert chat.written == "hello"


async def test_a_model_that_cannot_load_says_why_and_can_be_tried_again() -> None:
    workspace = ScriptedWorkspace(load_error=BundleError("out/ has no manifest; export first"))
    async with opened(workspace, loaded=False) as chat:
        await chat.see("out/ has no manifest; export first")
        workspace.load_error = None
        await chat.press("f5")
        await chat.until(lambda: chat.screen.session.available is not None)
        assert not chat.screen.panel.display


async def test_session_pictures_and_prompt_are_there_at_the_start(tmp_path: Path) -> None:
    workspace = ScriptedWorkspace()
    stored = workspace.add("Norway", dialogue(2))
    opening = Opening(stored.id, (picture_file(tmp_path),), "what is on it?")
    async with opened(workspace, opening=opening) as chat:
        await chat.see("Answer number 2.")
        await chat.see("house.png 64×32 4 slots")
        assert chat.written == "what is on it?"
        assert len(chat.conversation.steps) == 4


async def test_an_unknown_session_can_become_a_new_conversation() -> None:
    async with opened(opening=Opening("c99"), loaded=False) as chat:
        await chat.see("There is no chat 'c99'")
        await chat.press("f6")
        await chat.until(lambda: chat.screen.session.available is not None)


async def test_every_size_shows_conversation_composer_and_capacity() -> None:
    async with opened(ScriptedWorkspace([Reply("The **answer** in `code`.")])) as chat:
        await chat.ask("A question?")
        for width, height in ((60, 20), NARROW, (100, 30), (300, 100)):
            shown = await chat.resized(width, height)
            for words in ("A question?", "The answer in code.", "Ask anything", "%"):
                assert words in shown
            assert all(len(strip) <= width for strip in shown.split("\n"))


async def test_every_theme_draws_code_meters_and_dialogs() -> None:
    reply = Reply("```python\nx = 1\n```\n\n> quote", reasoning="hm")
    async with opened(ScriptedWorkspace([reply])) as chat:
        await chat.ask("A question?")
        for theme in ("q35-dark", "q35-light", "ansi-dark", "ansi-light", "dracula"):
            chat.app.theme = theme
            assert "x = 1" in await chat.settled()
            await chat.press("f2")
            await chat.see("Temperature")
            await chat.press("escape")


async def test_without_colour_the_parts_of_the_bar_still_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    workspace = ScriptedWorkspace()
    stored = workspace.add("t", dialogue(1))
    stored.fill(1_000)
    async with opened(workspace, opening=Opening(stored.id)) as chat:
        await chat.write("word " * 300)
        await chat.until(lambda: "this turn" in chat.text and "needs" in chat.text)
        row = next(line for line in chat.text.split("\n") if "█▒" in line)
        assert "▒·" in row


def test_native_output_goes_to_a_file_and_the_screen_keeps_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "native.log"
    before = sys.__stderr__
    with apart(log):
        os.write(2, b"native noise\n")
        assert sys.__stderr__ is not None
        sys.__stderr__.write("screen\n")
        sys.__stderr__.flush()
    os.write(2, b"afterwards\n")
    assert sys.__stderr__ is before
    assert log.read_text() == "native noise\n"
    assert capfd.readouterr().err == "screen\nafterwards\n"


def test_a_log_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with apart(tmp_path / "file" / "native.log"):
        os.write(2, b"lost\n")


def test_the_first_paint_waits_for_no_dialog_no_turn_and_no_large_library() -> None:
    program = """
import asyncio, sys
from q35chat.commands import chat
from q35chat.commands.export_process import ChildExporter
from q35chat.settings import Settings, load_settings
from q35chat.store import Store
from q35chat.tui.app import ChatApp
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.screens.chat import Opening
class Painted(ChatApp):
    def painted(self):
        print(*(name for name in sys.modules if not name.startswith("textual")))
        self.exit()
with Store() as store:
    space = chat.stored_workspace(store, chat.ChatOptions(), load_settings(), print)
    space.load = lambda: None
    app = Painted(space, Opening(), Settings(), Drafts.at_home(), exporter=ChildExporter())
    asyncio.run(app.run_async(headless=True))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    heavy = {"numpy", "PIL", "markdown_it", "pygments", "tokenizers", "transformers", "onnxruntime"}
    heavy |= {"httpx2", "q35chat.endpoint.network"}
    screens = {name for name in loaded if name.startswith("q35chat.tui.screens.")}
    assert screens == {
        f"q35chat.tui.screens.{name}" for name in ("chat", "palette", "dialog")
    }  # the last is what the palette has in common with dialogs
    assert not loaded & (
        heavy | {"q35chat.tui.widgets.turns", "q35chat.tui.exporting", "q35chat.commands.model"}
    )


@pytest.mark.parametrize("theme", ["q35-dark", "q35-light", "ansi-light"])
async def test_styles_are_read_once_whatever_the_theme_and_dialogs_bring_their_own(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Stylesheet] = []
    monkeypatch.setattr(Stylesheet, "reparse", read.append)
    async with opened(settings=Settings(theme=theme)) as chat:
        await chat.press("f2")
        await chat.see("Temperature")
        assert chat.app.screen.query_one(".dialog").styles.background == Color.parse(
            chat.app.theme_variables["surface"]
        )
        assert not read
        assert chat.app.has_class(f"-theme-{theme}")
        assert chat.app.has_class("-dark-mode") is (theme == "q35-dark")


async def test_a_dialog_that_is_opened_before_the_first_paint_gets_its_styles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    painted = ChatApp.painted

    def opened_before(app: ChatApp) -> None:
        app.push_screen(HelpScreen(app.keymap))
        app.screen.call_after_refresh(painted, app)

    monkeypatch.setattr(ChatApp, "painted", opened_before)
    async with opened() as chat:
        await chat.see("Keys and commands")
        await chat.until(lambda: chat.app.screen.query_one(".dialog").size.width == 92 - 6)


async def test_the_application_can_be_left_while_a_conversation_is_being_opened() -> None:
    workspace = ScriptedWorkspace()
    conversation = workspace.add("Long", dialogue(40))
    async with opened(workspace) as chat:
        chat.screen.loader.open(conversation.id)
        while chat.screen.session.conversation is not conversation:
            await asyncio.sleep(0)
        chat.app.exit()
    assert chat.app.return_code == 0
