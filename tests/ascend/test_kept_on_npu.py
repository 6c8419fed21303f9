"""States leave the device through host copies and come back to it, in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.ascend.native_log import native_log
from q35chat.ascend.options import NpuOptions
from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.values import Turn
from q35chat.commands.model import graph_opener
from q35chat.engine.decoder import Decoder
from q35chat.states.file import read_state, write_state
from q35chat.states.pool import StatePool
from tests.ascend.chatting import GREEDY, HELLO, Bundles, ask
from tests.ascend.conftest import Export
from tests.ascend.decoding import GEARS, HOST, IDS, SHAPE, Open, greedy, read
from tests.doubles.mindspore_lite.npu import Npu

KINDS: list[dict[str, Any]] = [{}, {"stateless_prefill": True}, {"fused_decode": False}]
MORE = [*range(20, 32)]


def moved(left: Decoder, opened: Decoder, path: Path) -> None:
    """Put what `left` has read into `opened`, through a file."""
    write_state(path, left.dump(left.snapshot()), lambda _: True)
    opened.load(read_state(path))


@pytest.mark.parametrize("device", [NpuOptions(), HOST], ids=["device", "host"])
@pytest.mark.parametrize("options", KINDS, ids=["standard", "stateless", "growing"])
def test_what_follows_is_the_same_to_the_bit(
    exported: Export, graphs: Open, tmp_path: Path, options: dict[str, Any], device: NpuOptions
) -> None:
    config = exported(SHAPE, **GEARS, **options).config
    image = config.image_token_id
    rows = np.random.default_rng(3).normal(size=(4, config.text.hidden_size)).astype(np.float32)
    left, opened = (graphs(options, device=device).decoder(image) for _ in range(2))
    read(opened, MORE)
    tokens = greedy(left, read(left, [3, *[image] * 4, *IDS], rows), 3)
    moved(left, opened, tmp_path / "a.state")

    assert opened.keys.tolist() == left.keys.tolist()
    following = [tokens[-1], *MORE]
    np.testing.assert_array_equal(read(opened, following), read(left, following))
    np.testing.assert_array_equal(opened.step(7), left.step(7))
    point = opened.snapshot()
    wanted = opened.step(8).copy()
    opened.restore(point)
    np.testing.assert_array_equal(opened.step(8), wanted)


def test_a_chat_goes_on_in_another_process_without_being_read_again(
    bundles: Bundles, npu: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    bundle, pool = Bundle.open(bundles("random")), StatePool(tmp_path / "states", 1 << 30)
    left, opened = (
        ChatEngine.open(bundle, graph_opener(bundle, None), states=pool) for _ in range(2)
    )
    said = ask(left, HELLO)
    answer = Turn("assistant", said.text, (), said.reasoning, said.token_ids, "stop")
    chat = [HELLO, answer]
    left.keep(chat, GREEDY, "chat", lambda: False)
    found, wanted = (ask(engine, *chat, Turn("user", "Why?")) for engine in (opened, left))

    assert found.usage.reused_tokens == wanted.usage.reused_tokens > 0
    assert found.token_ids == wanted.token_ids
    for engine in (left, opened):
        engine.close()
    assert npu.dangling == 0
    native_log(tmp_path / "any").remove()


@pytest.mark.parametrize("options", KINDS, ids=["standard", "stateless", "growing"])
def test_what_does_not_fit_is_refused_and_the_decoder_can_be_used(
    graphs: Open, options: dict[str, Any]
) -> None:
    left, opened = (graphs(options).decoder() for _ in range(2))
    wanted = read(left, IDS)
    arrays = dict(left.dump(left.snapshot()))
    for name in arrays:
        opened.load(arrays)
        with pytest.raises(ValueError, match=r"."):
            opened.load({other: array for other, array in arrays.items() if other != name})
        with pytest.raises(ValueError, match=r"."):
            opened.load(arrays | {name: np.zeros((3, 2, 5), np.int8)})
        opened.reset()

    np.testing.assert_array_equal(read(opened, IDS), wanted)
