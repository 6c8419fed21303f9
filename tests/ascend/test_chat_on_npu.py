"""The whole chat on the NPU's path: export, conversion, and turns through the stand-in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat.ascend.options import NpuOptions
from q35chat.ascend.tensors import DeviceMemoryError
from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import PrefillProgress, Token
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.commands.model import graph_opener
from q35chat.errors import CapacityError, RuntimeFailure
from q35chat.store import Store
from tests.ascend.chatting import (
    DEMO,
    GREEDY,
    HELLO,
    PICTURES,
    Bundles,
    OpenChat,
    ask,
    finished,
    run,
)
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.exported import export_bundle

SWAP, MOVED = NpuOptions(residency="swap"), NpuOptions(host_state_roundtrip=True)


def test_a_turn_is_answered(open_chat: OpenChat, npu: Npu) -> None:
    engine = open_chat()
    answer = ask(engine, HELLO)

    assert len(answer.token_ids) > 1
    assert engine.model.device == "NPU 0"
    assert (engine.model.target, engine.model.capacity) == ("ascend-310p", 192)
    assert answer.usage.timings.route.endswith("ms")
    assert all(time > 0 for time in answer.usage.timings.predict_ms)
    assert npu.aliased == 0


@pytest.mark.parametrize("name", ["random", "demo"])
def test_residency_and_the_host_round_trip_change_no_token(open_chat: OpenChat, name: str) -> None:
    wanted = ask(open_chat(name), HELLO)

    for options in (SWAP, MOVED):
        assert ask(open_chat(name, options), HELLO).token_ids == wanted.token_ids


@pytest.mark.parametrize(
    ("gears", "options"),
    [((16, 64, 128), NpuOptions()), ((1, 16, 64, 128), NpuOptions(residency="one"))],
)
def test_guessed_tokens_are_computed_together_and_change_no_answer(
    open_chat: OpenChat, gears: tuple[int, ...], options: NpuOptions
) -> None:
    name, settings = f"demo several {len(gears)}", {"gears": gears, "step_tokens": 4}
    plain = open_chat(name, options, "off", **settings)
    first = ask(plain, HELLO)
    again = (HELLO, Turn("assistant", first.text), HELLO)
    wanted = ask(plain, *again)
    answer = ask(open_chat(name, options, "lookup", **settings), *again)

    assert answer.token_ids == wanted.token_ids
    assert answer.usage.drafted_tokens >= answer.usage.accepted_tokens > 0
    assert wanted.usage.drafted_tokens == 0


def test_the_demo_answers_as_on_the_cpu(open_chat: OpenChat, tmp_path: Path) -> None:
    from q35chat.runtimes import cpu  # noqa: PLC0415

    out = export_bundle(DEMO, tmp_path / "cpu", target="cpu", precision="fp32")
    on_cpu = ChatEngine.open(Bundle.open(out), cpu(threads=1))
    npu = open_chat("demo")

    for turns in dialogue(npu, on_cpu):
        assert ask(npu, *turns).text == ask(on_cpu, *turns).text


def dialogue(npu: ChatEngine, cpu: ChatEngine) -> Iterator[list[Turn]]:
    first = [HELLO]
    yield first
    yield [*first, Turn("assistant", ask(cpu, *first).text), Turn("user", "And what is 2 + 3?")]
    picture = npu.attach(PICTURES / "two-circles.jpg", 64)
    yield [Turn("user", "What is in this picture?", (picture,))]


def test_a_second_turn_reads_only_what_is_new(open_chat: OpenChat) -> None:
    engine = open_chat()
    first = ask(engine, HELLO)
    second = ask(engine, HELLO, Turn("assistant", first.text), Turn("user", "Why?"))

    assert second.usage.reused_tokens > 0


def test_a_second_turn_with_a_stateless_prefill_is_the_same(open_chat: OpenChat) -> None:
    turns = (HELLO, Turn("assistant", "I am a test."), Turn("user", "Why?"))
    stateless, stateful = open_chat("stateless", stateless_prefill=True), open_chat()
    ask(stateless, HELLO), ask(stateful, HELLO)

    assert ask(stateless, *turns).token_ids == ask(stateful, *turns).token_ids


def test_a_growing_cache_answers(open_chat: OpenChat) -> None:
    engine = open_chat("growing", fused_decode=False)

    first = ask(engine, HELLO)
    second = ask(engine, HELLO, Turn("assistant", first.text), Turn("user", "Why?"))
    assert len(first.token_ids) > 1
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_picture_is_capped_at_the_largest_gear(open_chat: OpenChat) -> None:
    engine = open_chat()
    picture = engine.attach(PICTURES / "wide.png", 1024)
    answer = ask(engine, Turn("user", "Look.", (picture,)))

    assert 0 < picture.tokens <= 64
    assert answer.usage.image_tokens == picture.tokens


def test_an_answer_ends_at_the_last_slot(open_chat: OpenChat) -> None:
    settings = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=None,
                            loop_guard=False)  # fmt: skip
    end = finished(run(open_chat(), HELLO, settings=settings))

    assert end.reason == "capacity"
    assert (end.usage.capacity_used, end.usage.capacity_free) == (192, 0)


def test_a_prompt_over_the_capacity_is_refused(open_chat: OpenChat) -> None:
    with pytest.raises(CapacityError, match="capacity 192"):
        run(open_chat(), Turn("user", "word " * 300))


def test_a_failure_in_the_middle_of_an_answer_leaves_a_model_that_answers(
    open_chat: OpenChat, npu: Npu
) -> None:
    wanted, engine = ask(open_chat(), HELLO), open_chat()
    ask(engine, Turn("user", "Hello"))  # a first run would be tried the other way, too
    events = engine.run([HELLO], GREEDY, lambda: False)
    for event in events:
        if isinstance(event, Token):
            npu.fail_predicts = 1
            break
    with pytest.raises(RuntimeFailure, match="the decode graph failed: Execute graph failed"):
        list(events)

    assert ask(engine, HELLO).token_ids == wanted.token_ids


def test_a_cancelled_prompt_leaves_a_model_that_answers(open_chat: OpenChat) -> None:
    wanted, engine = ask(open_chat(), HELLO), open_chat()
    for event in engine.run([HELLO], GREEDY, lambda: True):
        assert not isinstance(event, Token)
    for event in engine.run([HELLO], GREEDY, lambda: False):
        if isinstance(event, PrefillProgress):
            break

    assert ask(engine, HELLO).token_ids == wanted.token_ids


def test_two_engines_after_one_another_leave_nothing_on_the_device(
    open_chat: OpenChat, npu: Npu
) -> None:
    before, used, tokens, engines = npu.used, [], [], []
    for _ in range(2):
        engine = open_chat()
        picture = engine.attach(PICTURES / "two-circles.jpg", 64)
        tokens.append(ask(engine, Turn("user", "Look.", (picture,))).token_ids)
        engine.close()
        engines.append(engine)
        used.append(npu.used)

    assert tokens[0] == tokens[1]
    assert (used, npu.dangling, len(engines)) == ([before] * 2, 0, 2)


def test_a_closed_engine_keeps_nothing_to_be_used_again(open_chat: OpenChat) -> None:
    engine = open_chat()
    picture = engine.attach(PICTURES / "two-circles.jpg", 64)
    ask(engine, Turn("user", "Look.", (picture,)))
    cache, pictures = engine._model.cache, engine._model.pictures
    place = pictures.place(picture, GREEDY.max_image_tokens)
    before = bool(cache.snapshots), pictures.is_encoded(place)
    engine.close()

    assert before == (True, True)
    assert (cache.snapshots, pictures.is_encoded(place)) == ((), False)


def test_a_model_that_could_not_be_loaded_leaves_nothing_while_the_error_is_kept(
    open_chat: OpenChat, npu: Npu
) -> None:
    before = npu.used
    npu.limit = before + (5 << 19)
    with pytest.raises(DeviceMemoryError, match="no memory left") as kept:
        open_chat(npu=NpuOptions(residency="both"))

    assert (npu.used, kept.value.__traceback__ is None) == (before, False)
    npu.limit = before + (1 << 30)
    assert ask(open_chat(npu=NpuOptions(residency="both")), HELLO).token_ids


@pytest.mark.parametrize("fails", [False, True])
def test_a_restart_needs_no_memory_for_two_while_a_conversation_is_open(
    open_chat: OpenChat, npu: Npu, tmp_path: Path, fails: bool
) -> None:
    before, at_load = npu.used, []

    def load() -> tuple[ChatEngine, ChatSettings]:
        at_load.append(npu.used)
        return open_chat(), GREEDY

    with Store(tmp_path / "store") as store:
        workspace = Workspace(store, load, reads_ahead=False)
        workspace.load()
        chat = workspace.new()
        wanted = list(chat.send("Hello"))[-1]
        kept = None
        if fails:
            npu.fail_predicts = 1
            with pytest.raises(RuntimeFailure, match="Execute graph failed") as kept:
                list(chat.send("Why?"))
        npu.limit = npu.used + (1 << 10)
        workspace.restart()
        again = finished(list(workspace.new().send("Hello")))
        reopened = workspace.reopen(chat)
        workspace.wait_idle()

    assert again.token_ids == finished([wanted]).token_ids
    assert at_load == [before] * 2
    assert reopened.backend is not chat.backend
    assert (kept is not None) == fails


def test_a_device_too_small_for_the_runs_of_a_turn_beside_all_graphs_swaps_by_itself(
    open_chat: OpenChat, npu: Npu
) -> None:
    wanted, engine = ask(open_chat(), HELLO).token_ids, open_chat()
    npu.limit, npu.workspace = npu.used + (1 << 19), 1 << 20

    assert ask(engine, HELLO).token_ids == wanted
    assert npu.dangling == 0


def test_a_device_too_small_for_both_graphs_swaps_by_itself(open_chat: OpenChat, npu: Npu) -> None:
    wanted = ask(open_chat(), HELLO).token_ids
    npu.reset()
    npu.limit = npu.used + (3 << 20)
    answer = ask(open_chat(), HELLO)

    assert answer.token_ids == wanted
    assert npu.builds > 3


def test_a_bundle_that_is_not_converted_says_what_to_run(
    bundles: Bundles, npu: Npu, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(bundles("random"), folder)
    text = (folder / "q35chat.json").read_text(encoding="utf-8")
    (folder / "q35chat.json").write_text(
        text.replace('decode/decode_graph.mindir",\n', 'decode/model.onnx",\n').replace(
            '"decode": "decode/decode_graph.mindir"', '"decode": "decode/model.onnx"'
        ),
        encoding="utf-8",
    )
    bundle = Bundle.open(folder)

    with pytest.raises(
        RuntimeFailure, match=r"not converted for the NPU \(decode\): run q35chat convert"
    ):
        graph_opener(bundle, None)
    assert npu.builds == 0


def test_everything_native_stays_off_the_screen(
    bundles: Bundles, open_chat: OpenChat, npu: Npu, capfd: pytest.CaptureFixture[str]
) -> None:
    bundles("random")
    capfd.readouterr()
    ask(open_chat(), HELLO)

    assert capfd.readouterr() == ("", "")
