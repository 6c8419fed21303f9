"""Long answers and long histories: what is on screen is right, and a frame's work is bounded.

Work is counted, not timed: characters laid out, widgets there are, reads of the history.
"""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.service import Step
from q35chat.tui.chat.running_turn import Batch, RunningTurn
from q35chat.tui.markdown import layout as markdown_layout
from q35chat.tui.markdown.segments import LINE_LIMIT
from q35chat.tui.widgets.turns import AnswerView
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import (
    MODEL,
    ScriptedConversation,
    ScriptedWorkspace,
    dialogue,
)
from tests.tui.support import Chat, opened

ROOMY = replace(MODEL, capacity=100_000)
TOKENS = 20_000
STEP = 400
CHARACTERS = 4


def numbered(tokens: int) -> str:
    """Paragraphs of numbered words that make so many tokens of four characters."""
    words, length = list[str](), 0
    while length < tokens * CHARACTERS:
        word = f"w{len(words)}" + ("\n\n" if len(words) % 60 == 59 else " ")
        words.append(word)
        length += len(word)
    return "".join(words)


def prose_and_code(tokens: int) -> str:
    """Every kind of block, and one fence that never ends, in so many tokens."""
    part = (
        "Some prose with **bold** words.\n\n```python\nx = 1\n```\n\n- a\n- b\n\n| a |\n|---|\n\n"
    )
    half = tokens * CHARACTERS // 2
    code = "```python\n" + "value = search(items, 7)  # a comment\n" * (half // 38 + 1)
    return part * (half // len(part) + 1) + code


@contextmanager
def work_per_frame(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Characters that were laid out since the frame before, a number for each frame."""
    lay_out, frame = markdown_layout.lay_out, RunningTurn.frame
    counts = [0]

    def counting(source: str, width: int, *, inside_code: bool = False) -> object:
        counts[-1] += len(source)
        return lay_out(source, width, inside_code=inside_code)

    def framing(turn: RunningTurn) -> Batch | None:
        counts.append(0)
        return frame(turn)

    with monkeypatch.context() as patch:
        patch.setattr(markdown_layout, "lay_out", counting)
        patch.setattr(RunningTurn, "frame", framing)
        yield counts


async def transcript_text(chat: Chat) -> str:
    """The conversation as it can be read on screen, from its first line to its last."""
    transcript = chat.screen.transcript
    rows: dict[int, str] = {}
    height = transcript.size.height
    for top in range(0, transcript.max_scroll_y + height, height):
        transcript.scroll_to(y=top, animate=False, force=True)
        await chat.pilot.pause()
        region = transcript.content_region
        strips = chat.app.screen._compositor.render_strips()[region.y : region.bottom]
        for offset, strip in enumerate(strips):
            rows[round(transcript.scroll_y) + offset] = strip.crop(region.x, region.right).text
    return "\n".join(rows[row] for row in sorted(rows))


async def test_every_one_of_twenty_thousand_tokens_can_be_read_on_the_screen() -> None:
    text = numbered(TOKENS)
    async with opened(ScriptedWorkspace([Reply(text)], info=ROOMY)) as chat:
        await chat.ask("go")
        assert chat.screen.session.meter.made >= TOKENS
        view = chat.screen.transcript.views[-1]
        assert isinstance(view, AnswerView)
        assert view.answer.text == text
        words = re.findall(r"\bw\d+\b", await transcript_text(chat))
        assert words == text.split()


async def test_a_frame_late_in_a_long_answer_costs_what_an_early_one_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    text = prose_and_code(TOKENS)
    reply = Reply(text, gate=gate)
    async with opened(ScriptedWorkspace([reply], info=ROOMY)) as chat:
        with work_per_frame(monkeypatch) as counts:
            await chat.send("go")
            for made in range(STEP, TOKENS, STEP):
                gate.let(STEP)
                await chat.made(made)
                assert len(list(chat.screen.walk_children())) < 250
            gate.open()
            await chat.idle()
        view = chat.screen.transcript.views[-1]
        assert isinstance(view, AnswerView)
        assert view.answer.text == text
        early, late = counts[: len(counts) // 4], counts[-len(counts) // 4 :]
        assert max(counts) <= 2 * (LINE_LIMIT + STEP * CHARACTERS)
        assert max(late) <= 2 * max(early)


async def test_a_frame_over_a_thousand_turns_reads_no_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    reads: list[int] = []

    read = vars(Conversation)["steps"].fget

    def counting(conversation: ScriptedConversation) -> Sequence[Step]:
        reads.append(1)
        return tuple(read(conversation))

    workspace = ScriptedWorkspace([Reply("some words " * 300, gate=gate)], info=ROOMY)
    conversation = workspace.add("Long", dialogue(500))
    async with opened(workspace) as chat:
        chat.screen.loader.open(conversation.id)
        await chat.see("Answer number 500.")
        widgets = len(list(chat.screen.walk_children()))
        await chat.send("go")
        gate.let(100)
        await chat.made(100)
        monkeypatch.setattr(ScriptedConversation, "steps", property(counting))
        for made in range(200, 700, 100):
            gate.let(100)
            await chat.made(made)
        assert reads == []
        assert len(list(chat.screen.walk_children())) < widgets + 30
        gate.open()
        await chat.idle()
        assert len(chat.conversation.steps) == 1_002
        assert len(chat.screen.transcript.views) <= 36


async def test_no_collection_of_garbage_walks_what_was_there_before_the_answer() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("some words " * 30, gate=gate)])) as chat:
        conversation = chat.conversation
        await chat.send("go")
        gate.let(5)
        await chat.made(5)
        assert conversation not in gc.get_objects()
        gate.open()
        await chat.idle()
        assert gc.get_freeze_count() == 0


async def test_nothing_that_a_former_chat_has_drawn_stays_in_memory() -> None:
    async with opened(ScriptedWorkspace([Reply(answer="Yes.")])) as chat:
        for question in ("One?", "Two?"):
            await chat.ask(question)
        views = chat.screen.query(AnswerView).results()
        drawn = [weakref.ref(view._styles_cache) for view in views]
        assert len(drawn) == 2
        del views
        for question in ("Three?", "Four?"):
            await chat.new()
            await chat.ask(question)
        await chat.settled()
        gc.collect()
        assert [one() for one in drawn if one() is not None] == []
