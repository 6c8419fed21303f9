"""Graphs as the reference scripts make them: their names, fixed lengths, one square picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from q35chat.ascend.gears import PromptGearError
from q35chat.ascend.residency import Mode
from q35chat.bundle.foreign import open_bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.values import Turn
from q35chat.commands.model import graph_opener
from q35chat.errors import PictureError
from tests.ascend.chatting import HELLO, PICTURES, Bundles, OpenChat, ask
from tests.ascend.conftest import Export
from tests.ascend.decoding import IDS, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.modelfile import write_model
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.lite import reference_folder
from tests.support.shapes import SHAPES

pytestmark = pytest.mark.usefixtures("open_chat")  # which sends native messages to a file

SQUARE = 128
TABLE = SHAPES["plain"].grid_side
LONG = "Describe this picture in a few words, please."
OPTIONS = {"stateless_prefill": True, "gears": (32, 64), "image_gears": (16,)}


@pytest.fixture
def folder(bundles: Bundles, tmp_path: Path) -> Path:
    return reference_folder(
        bundles("scripts", **OPTIONS), tmp_path / "qwen3_5_4b_mindir", grid=8, table=TABLE
    )


def chat_over(folder: Path) -> ChatEngine:
    bundle = open_bundle(folder)
    return ChatEngine.open(bundle, graph_opener(bundle, None))


def on_black_square(path: Path, out: Path) -> Path:
    """The picture as the reference scripts prepare it, but for the last resize."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened)
    side = max(image.size)
    canvas = Image.new("RGB", (side, side))
    canvas.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    canvas.resize((SQUARE, SQUARE), Image.Resampling.BICUBIC).save(out)
    return out


def test_the_engine_reads_exact_lengths_and_steps_the_rest(exported: Export, graphs: Open) -> None:
    options = {"stateless_prefill": True}
    made = graphs(options, loaders={"prefill": "load_all_tokens"})
    decoder = made.decoder()

    assert decoder.capacity == 64
    assert greedy(decoder, read(decoder, IDS), 8) == by_hand(exported, IDS, 8, **options)
    assert "prefill 8, then decode 3" in decoder.route  # their prefill must not be padded


def test_a_text_is_answered_as_by_our_own_graphs(open_chat: OpenChat, folder: Path) -> None:
    wanted = ask(open_chat("scripts", **OPTIONS), HELLO)
    engine = chat_over(folder)

    assert (engine.model.capacity, engine.model.target) == (192, "ascend-310p")
    assert ask(engine, HELLO).token_ids == wanted.token_ids


@pytest.mark.parametrize("name", ["wide.png", "two-circles.jpg"])
def test_a_picture_goes_through_their_tower_on_a_black_square(
    open_chat: OpenChat, folder: Path, tmp_path: Path, name: str
) -> None:
    ours, theirs = open_chat("scripts", **OPTIONS), chat_over(folder)
    square = on_black_square(PICTURES / name, tmp_path / "square.png")
    given, plain = ours.attach(square, 1024), theirs.attach(PICTURES / name, 1024)
    wanted = ask(ours, Turn("user", LONG, (given,)))
    answer = ask(theirs, Turn("user", LONG, (plain,)))

    assert given.tokens == plain.tokens == answer.usage.image_tokens == 16
    assert answer.token_ids == wanted.token_ids


def test_a_conversation_with_a_picture_goes_on(folder: Path) -> None:
    engine = chat_over(folder)
    picture = engine.attach(PICTURES / "shapes.png", 1024)
    first = Turn("user", LONG, (picture,))
    answer = ask(engine, first)
    second = ask(engine, first, Turn("assistant", answer.text), Turn("user", "Why?"))

    assert second.usage.prompt_tokens > answer.usage.prompt_tokens
    assert second.usage.image_tokens == 16


def test_a_picture_where_no_exact_length_reaches_it_says_what_the_graph_takes(
    folder: Path, npu: Npu
) -> None:
    engine = chat_over(folder)
    picture = engine.attach(PICTURES / "shapes.png", 1024)
    before = npu.predicts

    turns = [Turn("user", "Hi. " * 12), Turn("assistant", "Yes."), Turn("user", LONG, (picture,))]
    with pytest.raises(
        PromptGearError, match=r"takes no padding, only exactly 32 \(16 of pictures\), 64 \(16 of p"
    ):
        ask(engine, *turns)
    assert npu.predicts == before + 1  # the picture itself was encoded


@pytest.mark.parametrize("patches", [60, -1])
def test_a_tower_that_only_its_maker_can_feed_leaves_a_bundle_for_text(
    folder: Path, patches: int
) -> None:
    write_model(
        folder / "qwen3_5_vision.mindir",
        "tests.doubles.toy_graphs:tower",
        {"patches": patches, "width": SHAPES["plain"].hidden},
    )
    engine = chat_over(folder)

    assert len(ask(engine, HELLO).token_ids) > 1
    with pytest.raises(
        PictureError, match=r"shapes\.png cannot be shown to the model: its vision graph takes "
    ):
        engine.attach(PICTURES / "shapes.png", 1024)


def test_their_graphs_are_measured_with_their_weights(
    folder: Path, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [*folder.glob("*.mindir"), *folder.glob("*_variables/*")]
    wanted = sum(file.stat().st_size for file in files)
    seen = []

    def settled(mode: Mode, needed: int, free: int | None, *, one: bool) -> Mode:
        assert not one
        seen.append(needed)
        return mode

    monkeypatch.setattr("q35chat.ascend.runtime.decided", settled)
    graph_opener(open_bundle(folder), None)
    np.testing.assert_allclose(seen, [wanted * 1.1], rtol=0.01)
