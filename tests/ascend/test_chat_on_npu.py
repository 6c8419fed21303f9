"""The whole chat on the NPU's path: export, conversion, and turns through the stand-in."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from q35chat.adopted import open_bundle
from q35chat.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished, PrefillProgress, Token
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.graphs import graph_opener
from q35chat.commands.npu import NpuOptions
from q35chat.errors import CapacityError, RuntimeFailure
from q35chat.runtimes.native_log import native_log
from q35export.converter import find_converter
from q35export.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter
from tests.support.lite import converted

ROOT = Path(__file__).parents[2]
DEMO, PICTURES = ROOT / "assets" / "demo-model", ROOT / "assets" / "pictures"
GREEDY = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=24)
HELLO = Turn("user", "Hello, who are you?")
SWAP, MOVED = NpuOptions(residency="swap"), NpuOptions(host_state_roundtrip=True)

Open = Callable[..., ChatEngine]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Exported and converted bundles, once for all tests."""
    made: dict[str, Path] = {}

    def bundle(name: str, **options: object) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            source = DEMO if name.startswith("demo") else make_checkpoint(folder / "model", seed=5)
            request = ExportRequest(
                str(source), folder / "out", target="ascend-310p", max_seq_len=192,
                gears=(16, 64, 128), image_gears=(16, 64), **options,  # type: ignore[arg-type]
            )  # fmt: skip
            export(request, PlainReporter(sys.stderr))
            with pytest.MonkeyPatch.context() as patch:
                install_converter(folder / "bin", patch)
                convert(folder / "out", find_converter(), PlainReporter(sys.stderr))
            made[name] = folder / "out"
        return made[name]

    return bundle


@pytest.fixture
def open_chat(
    bundles: Callable[..., Path], npu: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def open_it(
        name: str = "random", npu: NpuOptions | None = None, **options: object
    ) -> ChatEngine:
        bundle = Bundle.open(bundles(name, **options))
        return ChatEngine.open(bundle, graph_opener(bundle, None, npu), device="NPU 0")

    yield open_it
    native_log(tmp_path / "any").remove()


def run(engine: ChatEngine, *turns: Turn, settings: ChatSettings = GREEDY) -> list[Event]:
    return list(engine.run(turns, settings, lambda: False))


def finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def ask(engine: ChatEngine, *turns: Turn) -> Finished:
    return finished(run(engine, *turns))


def test_a_turn_is_answered(open_chat: Open, npu: Npu) -> None:
    engine = open_chat()
    answer = ask(engine, HELLO)

    assert len(answer.token_ids) > 1
    assert engine.model.device == "NPU 0"
    assert (engine.model.target, engine.model.capacity) == ("ascend-310p", 192)
    assert answer.usage.timings.route.endswith("ms")
    assert all(time > 0 for time in answer.usage.timings.predict_ms)
    assert npu.aliased == 0


@pytest.mark.parametrize("name", ["random", "demo"])
def test_residency_and_the_host_round_trip_change_no_token(open_chat: Open, name: str) -> None:
    wanted = ask(open_chat(name), HELLO)

    for options in (SWAP, MOVED):
        assert ask(open_chat(name, options), HELLO).token_ids == wanted.token_ids


def test_the_demo_answers_as_on_the_cpu(open_chat: Open, tmp_path: Path) -> None:
    from q35chat.runtimes import open_session  # noqa: PLC0415

    request = ExportRequest(str(DEMO), tmp_path / "cpu", target="cpu", precision="fp32")
    export(request, PlainReporter(sys.stderr))
    cpu = ChatEngine.open(
        Bundle.open(tmp_path / "cpu"), lambda path: open_session(path, "cpu", threads=1)
    )
    npu = open_chat("demo")

    for turns in dialogue(npu, cpu):
        assert ask(npu, *turns).text == ask(cpu, *turns).text


def dialogue(npu: ChatEngine, cpu: ChatEngine) -> Iterator[list[Turn]]:
    first = [HELLO]
    yield first
    yield [*first, Turn("assistant", ask(cpu, *first).text), Turn("user", "And what is 2 + 3?")]
    picture = npu.attach(PICTURES / "two-circles.jpg", 64)
    yield [Turn("user", "What is in this picture?", (picture,))]


def test_a_second_turn_reads_only_what_is_new(open_chat: Open) -> None:
    engine = open_chat()
    first = ask(engine, HELLO)
    second = ask(engine, HELLO, Turn("assistant", first.text), Turn("user", "Why?"))

    assert second.usage.reused_tokens > 0


def test_a_second_turn_with_a_stateless_prefill_is_the_same(open_chat: Open) -> None:
    turns = (HELLO, Turn("assistant", "I am a test."), Turn("user", "Why?"))
    stateless, stateful = open_chat("stateless", stateless_prefill=True), open_chat()
    ask(stateless, HELLO), ask(stateful, HELLO)

    assert ask(stateless, *turns).token_ids == ask(stateful, *turns).token_ids


def test_a_growing_cache_answers(open_chat: Open) -> None:
    engine = open_chat("growing", fused_decode=False)

    first = ask(engine, HELLO)
    second = ask(engine, HELLO, Turn("assistant", first.text), Turn("user", "Why?"))
    assert len(first.token_ids) > 1
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_picture_is_capped_at_the_largest_gear(open_chat: Open) -> None:
    engine = open_chat()
    picture = engine.attach(PICTURES / "wide.png", 1024)
    answer = ask(engine, Turn("user", "Look.", (picture,)))

    assert 0 < picture.tokens <= 64
    assert answer.usage.image_tokens == picture.tokens


def test_an_answer_ends_at_the_last_slot(open_chat: Open) -> None:
    settings = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=None,
                            loop_guard=False)  # fmt: skip
    end = finished(run(open_chat(), HELLO, settings=settings))

    assert end.reason in ("capacity", "stop")
    assert end.usage.capacity_used <= 192
    assert end.reason == "stop" or end.usage.capacity_free == 0


def test_a_prompt_over_the_capacity_is_refused(open_chat: Open) -> None:
    with pytest.raises(CapacityError, match="capacity 192"):
        run(open_chat(), Turn("user", "word " * 300))


def test_a_failure_in_the_middle_of_an_answer_leaves_a_model_that_answers(
    open_chat: Open, npu: Npu
) -> None:
    wanted, engine = ask(open_chat(), HELLO), open_chat()
    events = engine.run([HELLO], GREEDY, lambda: False)
    for event in events:
        if isinstance(event, Token):
            npu.fail_predicts = 1
            break
    with pytest.raises(RuntimeFailure, match="the decode graph failed: Execute graph failed"):
        list(events)

    assert ask(engine, HELLO).token_ids == wanted.token_ids


def test_a_cancelled_prompt_leaves_a_model_that_answers(open_chat: Open) -> None:
    wanted, engine = ask(open_chat(), HELLO), open_chat()
    for event in engine.run([HELLO], GREEDY, lambda: True):
        assert not isinstance(event, Token)
    for event in engine.run([HELLO], GREEDY, lambda: False):
        if isinstance(event, PrefillProgress):
            break

    assert ask(engine, HELLO).token_ids == wanted.token_ids


def test_two_engines_after_one_another_leave_nothing_on_the_device(
    open_chat: Open, npu: Npu
) -> None:
    before = npu.used
    tokens = []
    for _ in range(2):
        engine = open_chat()
        tokens.append(ask(engine, HELLO).token_ids)
        engine.close()
        del engine

    assert tokens[0] == tokens[1]
    assert npu.used == before


def test_a_device_too_small_for_both_graphs_swaps_by_itself(open_chat: Open, npu: Npu) -> None:
    wanted = ask(open_chat(), HELLO).token_ids
    npu.reset()
    npu.limit = npu.used + (3 << 20)
    answer = ask(open_chat(), HELLO)

    assert answer.token_ids == wanted
    assert npu.builds > 3


def test_a_bundle_that_is_not_converted_says_what_to_run(
    bundles: Callable[..., Path], npu: Npu, tmp_path: Path
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
    bundles: Callable[..., Path], open_chat: Open, npu: Npu, capfd: pytest.CaptureFixture[str]
) -> None:
    bundles("random")
    capfd.readouterr()
    ask(open_chat(), HELLO)

    assert capfd.readouterr() == ("", "")


def test_graphs_of_the_reference_scripts_answer_alike(
    bundles: Callable[..., Path], open_chat: Open, npu: Npu, tmp_path: Path
) -> None:
    wanted = ask(open_chat("stateless", stateless_prefill=True), HELLO)
    source, folder = bundles("stateless"), tmp_path / "reference"
    shutil.copytree(source / "processor", folder / "processor")
    for kind, loader in (("prefill", "load_all_tokens"), ("decode", "load")):
        onnx = source / kind / "model.onnx"
        converted(onnx, folder / kind / f"{kind}_graph.mindir", loader=loader)
    bundle = open_bundle(folder)
    engine = ChatEngine.open(bundle, graph_opener(bundle, None))

    assert engine.model.capacity == 192
    assert ask(engine, HELLO).token_ids == wanted.token_ids
