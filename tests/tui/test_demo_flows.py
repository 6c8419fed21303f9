"""Whole flows with the demo model: real tokenizer, graphs, engine and store under the screen.

What is asserted holds whatever the weights are; what the demo can answer is tested in tests/demo.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from textual import events

from q35chat.bundle.library import models_folder
from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event, Token
from q35chat.chat.service import Step
from q35chat.chat.values import SamplingSettings
from q35chat.commands.chat import ChatOptions, stored_workspace
from q35chat.settings import Settings
from q35chat.store import Store
from q35chat.tui.widgets.turns import AnswerView
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.doubles.scripted_backend import Gate
from tests.tui.support import Chat, opened

ASSETS = Path(__file__).parents[2] / "assets"
SHAPES = ASSETS / "pictures" / "shapes.png"
SMALL = 160


pytestmark = pytest.mark.usefixtures("real_work")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with its usual capacity."""
    return exported(tmp_path_factory.mktemp("demo"), 2048)


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with `SMALL` slots."""
    return exported(tmp_path_factory.mktemp("small"), SMALL)


def exported(folder: Path, capacity: int) -> Path:
    out = folder / "bundle"
    request = ExportRequest(
        model=str(ASSETS / "demo-model"), out=out, precision="fp32", max_seq_len=capacity
    )
    export(request, PlainReporter(StringIO()))
    return out


@asynccontextmanager
async def chatting(bundle: Path, store: Store, most_new: int = 40) -> AsyncIterator[Chat]:
    """The application over a demo bundle that answers greedily, in few tokens."""
    options = ChatOptions(model_dir=bundle, threads=1)
    workspace = stored_workspace(store, options, Settings(), lambda _: None)
    async with opened(cast("Any", workspace)) as chat:
        settings = open_conversation(chat).settings()
        greedy = SamplingSettings(temperature=0.0)
        open_conversation(chat).change_settings(
            replace(settings, sampling=greedy, max_new_tokens=most_new)
        )
        yield chat


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "conversations") as opened_store:
        yield opened_store


def open_conversation(chat: Chat) -> Conversation:
    conversation = chat.screen.session.conversation
    assert conversation is not None
    return conversation


async def asked(chat: Chat, text: str) -> Step:
    """Send a question and wait for the end of the answer."""
    turns = len(chat.screen.session.steps)
    await chat.send(text)
    return await answered(chat, lambda _: len(chat.screen.session.steps) == turns + 2)


async def answered(chat: Chat, so: Callable[[Step], bool]) -> Step:
    """Wait for the end of the turn that leaves a last step like this; that step."""
    await chat.until(lambda: bool(chat.screen.session.steps) and so(chat.screen.session.steps[-1]))
    await chat.idle()
    await chat.app.workers.wait_for_complete()
    await chat.pilot.pause()
    return chat.screen.session.steps[-1]


async def paste(chat: Chat, text: str) -> None:
    chat.screen.composer.editor.post_message(events.Paste(text))
    await chat.pilot.pause()


def shown(chat: Chat) -> str:
    """The text of the newest answer on screen."""
    view = chat.screen.transcript.views[-1]
    assert isinstance(view, AnswerView)
    return view.answer.text


def consistent(chat: Chat) -> None:
    """Screen, meters, store and engine say the same."""
    conversation = open_conversation(chat)
    capacity = chat.screen.session.meter.capacity
    assert shown(chat) == conversation.steps[-1].turn.text
    assert (capacity.kept, capacity.turn) == (conversation.used_slots, 0)
    assert capacity.kept + capacity.free == capacity.total == conversation.model.capacity
    assert f"{capacity.kept:,} used" in " ".join(chat.text.split())
    speeds_agree(chat)


def speeds_agree(chat: Chat) -> None:
    """The panel and the line under the last answer give the same speed and number of tokens."""
    [under] = re.findall(r"↓([\d,]+)  ([\d.,]+ tok/s)  ([\d.]+ ms)/step", chat.text)[-1:]
    [beside] = re.findall(r"([\d.,]+ tok/s)  ([\d,]+) tokens? ", chat.text)
    assert beside == (under[1], under[0])


def gated(conversation: Conversation, name: str, gate: Gate, monkeypatch: Any) -> None:
    """Let the tokens of `send` or `continue_answer` through one by one."""
    make = getattr(conversation, name)

    def slow(*arguments: Any) -> Iterator[Event]:
        for event in make(*arguments):
            if isinstance(event, Token):
                gate.wait()
            yield event

    monkeypatch.setattr(conversation, name, slow)


async def test_a_picture_is_asked_about_again_and_read_only_once(demo: Path, store: Store) -> None:
    async with chatting(demo, store) as chat:
        first = await asked(chat, "What can you do?")
        assert first.turn.role == "assistant"
        consistent(chat)

        await paste(chat, str(SHAPES))
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 1)
        [picture] = chat.screen.composer.chips.attachments
        await chat.see(f"shapes.png {picture.width}×{picture.height} {picture.tokens} slots")
        await chat.write("What do you see?")
        await chat.see(f"({picture.tokens} picture)")
        forecast = chat.screen.draft.forecast
        assert forecast is not None
        await chat.press("enter")
        looked = await answered(chat, lambda _: len(chat.screen.session.steps) == 4)
        assert open_conversation(chat).steps[2].turn.attachments == (picture,)
        assert looked.usage is not None
        assert looked.usage.image_tokens == picture.tokens == forecast.image_slots
        read = looked.usage.prompt_tokens - looked.usage.reused_tokens
        assert 0 < looked.usage.reused_tokens < looked.usage.prompt_tokens
        assert read >= picture.tokens
        assert looked.usage.timings.vision_ms > 0
        assert f"↑{read:,} new · {looked.usage.reused_tokens:,} reused" in chat.flat
        assert "▀" * 8 in chat.text
        consistent(chat)

        after = await asked(chat, "And what is on the left?")
        assert after.usage is not None
        assert after.usage.timings.vision_ms == 0
        assert after.usage.image_tokens == picture.tokens
        assert after.usage.prompt_tokens - after.usage.reused_tokens < picture.tokens
        consistent(chat)


async def test_an_answer_is_made_again_and_its_question_changed(demo: Path, store: Store) -> None:
    async with chatting(demo, store) as chat:
        once = await asked(chat, "What can you do?")
        await chat.press("alt+r")
        again = await answered(chat, lambda step: step.branches == 2)
        assert (again.branch, again.branches) == (1, 2)
        assert "version 2 of 2" in chat.flat
        assert again.turn.token_ids == once.turn.token_ids  # greedy
        consistent(chat)

        await chat.press("alt+left")
        await chat.see("version 1 of 2")
        await chat.press("ctrl+e")
        assert chat.written == "What can you do?"
        await chat.send(" In short.")
        edited = await answered(chat, lambda step: step.branches == 3)
        questions = [step for step in open_conversation(chat).steps if step.turn.role == "user"]
        assert [step.turn.text for step in questions] == ["What can you do? In short."]
        assert edited.branch == 2
        assert "version 3 of 3" in chat.flat
        consistent(chat)


async def test_an_answer_stopped_half_way_goes_on_where_it_was(
    demo: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(demo, store) as chat:
        whole = await asked(chat, "What can you do?")
        await chat.press("ctrl+n")
        await chat.until(lambda: not open_conversation(chat).steps)
        gate = Gate()
        conversation = open_conversation(chat)
        conversation.change_settings(
            replace(
                conversation.settings(),
                sampling=SamplingSettings(temperature=0.0),
                max_new_tokens=40,
            )
        )
        gated(conversation, "send", gate, monkeypatch)
        await chat.send("What can you do?")
        gate.let(3)
        await chat.made(3)
        await chat.press("escape")
        await chat.see("stopping…")
        gate.open()
        await chat.idle()
        stopped = conversation.steps[-1].turn
        assert stopped.finish == "cancelled"
        assert 0 < len(stopped.token_ids) < len(whole.turn.token_ids)
        assert whole.turn.text.startswith(stopped.text)
        await chat.see("■ stopped")
        consistent(chat)

        await chat.press("ctrl+g")
        await answered(chat, lambda step: step.turn.finish != "cancelled")
        completed = conversation.steps[-1].turn
        assert len(conversation.steps) == 2
        both = min(len(completed.token_ids), len(whole.turn.token_ids))
        assert both > len(stopped.token_ids)
        assert completed.token_ids[:both] == whole.turn.token_ids[:both]
        assert "■ stopped" not in chat.flat
        consistent(chat)


async def test_a_small_capacity_is_warned_of_filled_to_the_last_slot_and_left_by_a_key(
    small_demo: Path, store: Store
) -> None:
    async with chatting(small_demo, store, most_new=SMALL) as chat:
        chat.screen.session.meter.clock = lambda: 0.0
        await fill(chat, 0.90)
        capacity = chat.screen.session.meter.capacity
        await chat.see(f"▲ {capacity.fraction:.0%} of the capacity is used")
        assert f"{capacity.free} slots are left" in chat.flat
        old = open_conversation(chat).id

        await chat.write("And then, and then, and then, " * 6)
        await chat.see("✗ this turn needs")
        await chat.press("enter")
        await chat.see("This turn does not fit")
        assert not chat.screen.session.running
        await chat.press("f5")
        await chat.until(lambda: open_conversation(chat).id != old)
        await chat.until(lambda: chat.written.startswith("And then"))
        assert store.load(old)[1]


async def fill(chat: Chat, share: float) -> None:
    """Ask until so much of the capacity is used, with questions that leave a little room."""
    while chat.screen.session.meter.capacity.fraction < share:
        conversation = open_conversation(chat)
        words = 1
        while True:
            forecast = conversation.forecast("x " * (words + 1), ())
            if not forecast.fits or forecast.left_for_answer < 6:
                break
            words += 1
        conversation.change_settings(replace(conversation.settings(), max_new_tokens=4))
        await asked(chat, "x " * words)


async def test_an_answer_that_meets_the_end_of_the_capacity_is_kept_whole(
    small_demo: Path, store: Store
) -> None:
    async with chatting(small_demo, store, most_new=SMALL) as chat:
        conversation = open_conversation(chat)
        text = "x "
        while conversation.forecast(text + "x ", ()).left_for_answer > 3:
            text += "x "
        cut = await asked(chat, text)
        assert cut.turn.finish == "capacity"
        await chat.see("▲ capacity reached")
        await chat.see("Capacity reached")
        assert chat.screen.session.meter.capacity.free == 0
        consistent(chat)


async def test_a_conversation_is_written_to_markdown_with_its_picture(
    demo: Path, store: Store, tmp_path: Path
) -> None:
    async with chatting(demo, store) as chat:
        first = await asked(chat, "What can you do?")
        await paste(chat, str(SHAPES))
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 1)
        second = await asked(chat, "What do you see?")
        await chat.send(f"/export {tmp_path / 'written'}")
        await chat.hear("Written to")
        found = re.search(r"Written to (\S+\.md)", chat.said)
        assert found is not None
        written = Path(found[1]).read_text("utf-8")
        texts = ["What can you do?", first.turn.text, "What do you see?", second.turn.text]
        places = [written.index(text.strip()) for text in texts]
        assert places == sorted(places)
        link = re.search(r"!\[.*?\]\(<(.+?)>\)", written)
        assert link is not None
        assert (Path(found[1]).parent / link[1]).read_bytes() == SHAPES.read_bytes()


async def test_what_was_said_is_there_after_a_restart(demo: Path, store: Store) -> None:
    async with chatting(demo, store) as chat:
        said = await asked(chat, "What can you do?")
        session = open_conversation(chat).id
        used = open_conversation(chat).used_slots
    async with chatting(demo, store) as chat:
        await chat.press("ctrl+l")
        await chat.see("1 turn")
        await chat.press("enter")
        await chat.until(lambda: open_conversation(chat).id == session)
        await chat.pilot.pause()
        assert open_conversation(chat).steps[-1].turn == said.turn
        assert open_conversation(chat).used_slots == used
        consistent(chat)


async def test_two_bundles_of_one_checkpoint_have_names_of_their_own_and_can_be_compared(
    demo: Path, store: Store
) -> None:
    for name in ("exact", "small"):
        shutil.copytree(demo, models_folder() / name)
    async with chatting(models_folder() / "exact", store) as chat:
        said = await asked(chat, "Hello")
        assert (said.model, chat.screen.session.steps[-1].model) == ("exact", "exact")
        await chat.press(*"/model", "enter")
        await chat.see("● exact")
        assert "● small" not in chat.text
        await chat.press("escape")
        await chat.press(*"/compare exact", "enter")
        await chat.hear("There is no other model “exact”; small can be named; F9 exports one")
        await chat.press(*"/compare small", "enter")
        await chat.see("1 keep first")
        await chat.press("escape")
    async with chatting(models_folder() / "small", store) as chat:
        await chat.press("ctrl+l")
        await chat.see("1 turn")
        await chat.press("enter")
        await chat.hear("exact wrote the last answer; small writes the next")
