"""The setup screen with the real exporter and a real model."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.commands.chat import ChatOptions, stored_workspace
from q35chat.commands.export_process import ChildExporter
from q35chat.settings import Settings
from q35chat.store import Store
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint
from tests.tui.setting_up import looked_up, put, setting_up
from tests.tui.support import Chat, opened

pytestmark = pytest.mark.usefixtures("real_work")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain")


async def said(chat: Chat, text: str) -> None:
    """Ask the real model and wait for its few tokens."""
    conversation = chat.screen.session.conversation
    assert conversation is not None
    conversation.change_settings(replace(conversation.settings(), max_new_tokens=6))
    before = len(conversation.steps)
    await chat.send(text)
    await chat.until(lambda: len(conversation.steps) == before + 2)
    await chat.idle()


async def test_a_real_checkpoint_becomes_the_model_that_answers(
    checkpoint: Path, tmp_path: Path
) -> None:
    export_checkpoint(checkpoint, tmp_path / "old")
    options = ChatOptions(model_dir=tmp_path / "old")
    with Store() as store:
        workspace = stored_workspace(store, options, Settings(), lambda _: None)
        async with opened(cast("Any", workspace)) as chat:
            await said(chat, "hello")
            session = chat.screen.session.conversation
            assert session is not None
            chat.app.exporter = ChildExporter()
            await chat.press("f9")
            await chat.see("hub id or folder")
            put(chat, "model", str(checkpoint))
            put(chat, "capacity", "256")
            put(chat, "folder", "new")
            await looked_up(chat)
            await chat.press("down", "down", "enter")
            await chat.see("Next time: q35chat --model-dir new")
            assert Bundle.open(tmp_path / "new", check="full").manifest.precision == "int8"
            await chat.press("enter")
            await chat.until(lambda: chat.screen.session.conversation not in {session, None})
            now = chat.screen.session.conversation
            assert now is not None
            assert (now.id, len(now.steps)) == (session.id, 2)
            assert (now.model.capacity, now.model.precision) == (256, "int8")
            await said(chat, "and now?")
            assert "and now?" in chat.flat
        assert len(store.load(session.id)[1]) == 4


async def test_a_real_export_that_is_stopped_leaves_nothing(
    checkpoint: Path, tmp_path: Path
) -> None:
    worker = (sys.executable, "-m", "tests.support.held_export")
    async with setting_up(ChildExporter(worker)) as chat:
        put(chat, "model", str(checkpoint))
        await looked_up(chat)
        await chat.press("down", "down", "enter")  # fp32: nothing of it is kept to go on with
        await chat.see("✓ vision")
        await chat.see("▸ text")
        assert [path for path in tmp_path.iterdir() if ".q35-partial" in path.name]
        await chat.press("escape")
        await chat.see("Stop the export?")
        await chat.press("y")
        await chat.see("Stopped; nothing was written")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


async def test_a_folder_that_is_not_there_is_named_under_the_form() -> None:
    async with setting_up(ChildExporter()) as chat:
        put(chat, "model", "./nowhere")
        await chat.press("enter")
        await chat.see("nowhere does not exist: give the folder of a Qwen3.5 checkpoint")
