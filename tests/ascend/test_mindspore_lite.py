from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from q35chat.ascend.mindspore_lite import GearError, LiteRun, LiteSession
from q35chat.ascend.native_log import NativeLog
from q35chat.ascend.options import NpuOptions
from q35chat.ascend.residency import Mode, Residency, decided
from q35chat.ascend.runtime import graph_kind
from q35chat.ascend.tensors import DeviceMemoryError
from q35chat.engine.session import Array, Buffer
from q35chat.errors import RuntimeFailure
from tests.doubles.mindspore_lite.modelfile import variables_of, write_model
from tests.doubles.mindspore_lite.npu import Npu

TOY = "tests.doubles.toy_graphs:"
FLOAT = np.dtype(np.float32)
ON_NPU, ON_HOST = NpuOptions(), NpuOptions(host_state_roundtrip=True)


class Maker:
    """Writes model files and opens sessions over them, all with one log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = NativeLog(folder / "native.log")
        self.count = 0

    def write(
        self, graph: str = "counter", *, dims: str = "", weights: int = 0, **arguments: Any
    ) -> Path:
        self.count += 1
        shape = "numbers:1,-1;past_sum:1,4" if dims else ""
        path = self.folder / f"m{self.count}_graph.mindir"
        return write_model(path, TOY + graph, arguments, input_shape=shape,
                           dynamic_dims=dims, weights=weights)  # fmt: skip

    def __call__(self, device: NpuOptions = ON_NPU, residency: Residency | None = None,
                 **arguments: Any) -> LiteSession:  # fmt: skip
        path = self.write(**arguments)
        return LiteSession(path, "toy", device, self.log, residency=residency)


@pytest.fixture
def make(tmp_path: Path, npu: Npu) -> Iterator[Maker]:
    maker = Maker(tmp_path)
    yield maker
    maker.log.remove()


def bound(session: LiteSession, length: int = 3) -> tuple[LiteRun, dict[str, Buffer]]:
    buffers = {
        "numbers": session.allocate((1, length), FLOAT),
        "past_sum": session.allocate((1, 4), FLOAT),
        "double": session.allocate((1, 1), FLOAT),
        "present_sum": session.allocate((1, 4), FLOAT),
    }
    buffers["numbers"].write(np.ones((1, length), FLOAT))
    inputs = {name: buffers[name] for name in ("past_sum", "numbers")}
    outputs = {name: buffers[name] for name in ("present_sum", "double")}
    return session.bind(inputs, outputs), buffers


@pytest.mark.parametrize("device", [ON_NPU, ON_HOST])
def test_a_bound_run_fills_its_outputs_wherever_it_runs(make: Maker, device: NpuOptions) -> None:
    run, buffers = bound(make(device))
    buffers["past_sum"].write(np.full((1, 4), 10, FLOAT))
    run()

    assert buffers["present_sum"].host().tolist() == [[13, 13, 13, 13]]
    assert buffers["double"].host().tolist() == [[26]]


def test_on_the_npu_a_run_moves_no_bytes_and_allocates_nothing(make: Maker, npu: Npu) -> None:
    run, _ = bound(make())
    run()
    before = npu.allocations, npu.uploaded, npu.downloaded
    run()

    assert (npu.allocations, npu.uploaded, npu.downloaded) == before


def test_host_states_take_no_device_buffers(make: Maker, npu: Npu) -> None:
    bound(make(ON_HOST))

    assert npu.allocations == 1  # the weights


def test_tensors_are_described_by_the_file(make: Maker) -> None:
    session = make(dims="2;5")

    assert [(spec.name, spec.shape, spec.dtype) for spec in session.inputs] == [
        ("numbers", (1, None), FLOAT),
        ("past_sum", (1, 4), FLOAT),
    ]
    assert session.metadata["q35chat.graph"] == "toy"
    assert session.metadata["q35chat.gear_shapes"] == "numbers:1=2;numbers:1=5"


def test_a_lost_rank_is_an_empty_shape(make: Maker) -> None:
    assert [spec.shape for spec in make(graph="lost_rank").outputs] == [(), ()]


def test_buffers_must_have_the_dtype_of_the_graph(make: Maker) -> None:
    with pytest.raises(ValueError, match="numbers is float16, its buffer float32"):
        bound(make(graph="half"), 2)


def test_resize_happens_only_when_the_shape_changes(make: Maker, npu: Npu) -> None:
    session = make(dims="2;5")
    first, _ = bound(session, 2)
    second, _ = bound(session, 5)
    for run in (first, first, second, second, first):
        run()

    assert npu.resizes == 3


def test_a_graph_of_one_gear_names_it_and_is_never_resized(make: Maker, npu: Npu) -> None:
    path = make.write(length=3)
    session = LiteSession(path, "toy", ON_NPU, make.log, gears=[{("numbers", 1): 3}])
    bound(session)[0]()
    with pytest.raises(GearError, match="the toy graph has no gear for 2; it has 3: pad to one"):
        bound(session, 2)[0]()

    assert (npu.resizes, session.metadata["q35chat.gear_shapes"]) == (0, "numbers:1=3")


def test_a_static_graph_is_never_resized(make: Maker, npu: Npu) -> None:
    run, _ = bound(make(length=3))
    run()

    assert npu.resizes == 0


def test_an_unknown_length_names_the_gears_and_harms_nothing(make: Maker, npu: Npu) -> None:
    session = make(dims="2;5")
    good, buffers = bound(session, 2)
    with pytest.raises(GearError, match="the toy graph has no gear for 3; it has 2, 5: pad to one"):
        bound(session, 3)[0]()
    good()

    assert (npu.builds, buffers["double"].host().tolist()) == (1, [[4]])


def test_a_model_that_failed_is_built_again(make: Maker, npu: Npu) -> None:
    run, buffers = bound(make())
    run()
    npu.fail_predicts = 1
    with pytest.raises(RuntimeFailure, match="the toy graph failed: Execute graph failed") as error:
        run()
    assert str(make.log.path) in str(error.value)
    assert "\n" not in str(error.value)
    run()

    assert npu.builds == 2
    assert buffers["present_sum"].host().tolist() == [[3, 3, 3, 3]]


@pytest.mark.parametrize("manner", ["refuse", "ignore"])
def test_a_build_that_does_not_write_where_it_is_told_goes_through_the_host(
    make: Maker, npu: Npu, manner: Literal["refuse", "ignore"]
) -> None:
    npu.given_outputs = manner
    session = make(dims="2;5")
    run, buffers = bound(session, 2)
    run()
    assert buffers["present_sum"].host().tolist() == [[2, 2, 2, 2]]
    assert (session.refuses_outputs, npu.builds) == (True, 2)
    longer, more = bound(session, 5)
    longer()

    assert more["double"].host().tolist() == [[10]]
    assert (npu.builds, npu.dangling) == (2, 0)


def test_a_first_run_without_memory_says_nothing_about_outputs(make: Maker, npu: Npu) -> None:
    session = make()
    run, _ = bound(session)
    npu.limit, npu.workspace = npu.used + 100, 1000
    with pytest.raises(DeviceMemoryError):
        run()
    npu.workspace = 0
    run()

    assert not session.refuses_outputs


def test_outputs_bear_the_names_the_graph_gives_them(make: Maker) -> None:
    _, buffers = bound(make())

    assert buffers["present_sum"].native.name == "present_sum"  # type: ignore[attr-defined]


def test_buffers_of_the_last_run_live_as_long_as_the_graph(make: Maker) -> None:
    session = make()
    bound(session)[0]()
    gc.collect()

    bound(session)[0]()


def test_without_cann_the_error_says_so(make: Maker, npu: Npu) -> None:
    npu.cann = False

    with pytest.raises(RuntimeFailure, match=r"cannot load .*libgraph\.so.*source its set_env\.sh"):
        make()


def test_weights_that_were_moved_are_named(make: Maker) -> None:
    path = make.write()
    variables_of(path).rename(path.with_name("elsewhere"))

    with pytest.raises(
        RuntimeFailure, match=r"m1_variables/data_0 failed; the \*_variables folder"
    ):
        LiteSession(path, "toy", ON_NPU, make.log)


def test_a_file_that_is_no_model_is_one_line(make: Maker) -> None:
    path = make.folder / "m.mindir"
    path.write_bytes(b"\x00" * 100)

    with pytest.raises(RuntimeFailure, match=r"cannot load .*m\.mindir: parse model failed; log: "):
        LiteSession(path, "toy", ON_NPU, make.log)
    wanted = r"gone\.mindir is missing: run `q35chat convert`"
    with pytest.raises(RuntimeFailure, match=wanted):
        LiteSession(make.folder / "gone.mindir", "toy", ON_NPU, make.log)


def test_graphs_that_do_not_fit_together_take_turns(make: Maker, npu: Npu) -> None:
    npu.limit = npu.used + 1500
    residency = Residency("auto")
    first, second = (make(residency=residency, weights=1000) for _ in range(2))
    (run_first, one), (run_second, two) = bound(first), bound(second)
    for run in (run_first, run_second, run_first):
        run()

    assert one["double"].host().tolist() == two["double"].host().tolist() == [[6]]
    assert residency.swaps
    assert (first.is_loaded, second.is_loaded) == (True, False)
    assert first.reload_ms > 0


@pytest.mark.parametrize("failed_before", [False, True])
def test_a_run_that_does_not_fit_beside_another_graph_makes_it_leave(
    make: Maker, npu: Npu, failed_before: bool
) -> None:
    residency = Residency("auto")
    first, second = (make(residency=residency, weights=1000) for _ in range(2))
    (run_first, one), (run_second, two) = bound(first), bound(second)
    npu.limit, npu.workspace = npu.used + 100, 200
    if failed_before:
        npu.fail_predicts = 2
        with pytest.raises(RuntimeFailure, match="Execute graph failed"):
            run_second()
    run_second()

    assert two["double"].host().tolist() == [[6]]
    assert (first.is_loaded, residency.swaps) == (False, True)
    run_first()
    assert one["double"].host().tolist() == [[6]]
    assert (second.is_loaded, npu.dangling) == (False, 0)


def test_a_graph_that_failed_is_built_again_where_another_has_taken_the_room(
    make: Maker, npu: Npu
) -> None:
    residency = Residency("auto")
    first, second = (make(residency=residency, weights=1000) for _ in range(2))
    run, buffers = bound(second)
    npu.fail_predicts = 2
    with pytest.raises(RuntimeFailure):
        run()
    npu.limit = npu.used - 500
    run()

    assert (buffers["double"].host().tolist(), first.is_loaded) == ([[6]], False)


@pytest.mark.parametrize("mode", ["both", "swap", "auto"])
def test_a_run_that_never_fits_is_an_error_with_advice_and_can_be_tried_again(
    make: Maker, npu: Npu, mode: Mode
) -> None:
    residency = Residency(mode)
    first, second = (make(residency=residency, weights=1000) for _ in range(2))
    run, buffers = bound(second)
    npu.limit, npu.workspace = npu.used + 100, 10000

    with pytest.raises(DeviceMemoryError, match=r"failed: Malloc .*; the device has no memory"):
        run()
    assert first.is_loaded == (mode == "both")
    npu.workspace = 0
    run()
    assert buffers["double"].host().tolist() == [[6]]


def test_both_that_do_not_fit_are_an_error_with_advice(make: Maker, npu: Npu) -> None:
    npu.limit = npu.used + 1500
    residency = Residency("both")
    make(residency=residency, weights=1000)

    with pytest.raises(DeviceMemoryError, match="use --residency swap"):
        make(residency=residency, weights=1000)


@pytest.mark.parametrize("mode", ["auto", "swap", "both"])
def test_a_graph_too_large_alone_is_an_error(make: Maker, npu: Npu, mode: Mode) -> None:
    npu.limit = npu.used + 500

    with pytest.raises(DeviceMemoryError):
        make(residency=Residency(mode), weights=1000)


@pytest.mark.parametrize(
    ("mode", "needed", "free", "taken"),
    [
        ("auto", 10, 20, "auto"),
        ("auto", 30, 20, "swap"),
        ("auto", 30, None, "auto"),
        ("both", 30, 20, "both"),
        ("swap", 10, 20, "swap"),
    ],
)
def test_measured_memory_decides_auto(
    mode: Mode, needed: int, free: int | None, taken: Mode
) -> None:
    assert decided(mode, needed, free) == taken


def test_buffers_that_do_not_fit_make_another_graph_leave(make: Maker, npu: Npu) -> None:
    residency = Residency("auto")
    first, second = (make(residency=residency, weights=1000) for _ in range(2))
    npu.limit = npu.used + 100

    second.allocate((1, 200), FLOAT)
    assert (first.is_loaded, residency.swaps) == (False, True)


def test_a_closed_session_refuses_everything_and_frees_its_memory(make: Maker, npu: Npu) -> None:
    before = npu.used
    session = make(weights=1000)
    run, buffers = bound(session)
    run()
    session.close()

    with pytest.raises(RuntimeFailure, match="the toy graph is closed"):
        run()
    with pytest.raises(RuntimeFailure, match="the toy graph is closed"):
        session.allocate((1,), FLOAT)
    assert (npu.used, npu.dangling, len(buffers)) == (before, 0, 4)


def test_a_file_that_cannot_be_described_leaves_nothing_loaded_while_the_error_is_kept(
    make: Maker, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, residency = npu.used, Residency("auto")
    with monkeypatch.context() as patch:
        patch.setattr("q35chat.ascend.tensors._TYPES", {})
        with pytest.raises(RuntimeFailure, match="cannot hold") as kept:
            make(residency=residency, weights=1000)

    assert (npu.used, kept.value.__traceback__ is None) == (before, False)
    assert not residency.make_room(make(residency=residency))


def test_nothing_native_reaches_the_screen(
    make: Maker, npu: Npu, capfd: pytest.CaptureFixture[str]
) -> None:
    run, _ = bound(make())
    run()
    npu.fail_predicts = 1
    with pytest.raises(RuntimeFailure):
        run()

    assert capfd.readouterr() == ("", "")
    assert "Open libnuma.so failed!" in make.log.path.read_text(encoding="utf-8")


class OldModel:
    """What 2.0.0 has."""

    def predict(self, inputs: Array) -> None: ...

    def resize(self, inputs: Array, dims: Array) -> None: ...


def test_a_package_that_is_too_old_is_named_with_what_it_lacks(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.doubles import mindspore_lite  # noqa: PLC0415

    monkeypatch.setattr(mindspore_lite, "Model", OldModel)
    monkeypatch.setattr(mindspore_lite, "__version__", "2.0.0")
    with pytest.raises(
        RuntimeFailure,
        match=r"2\.0\.0 has no Model\.get_outputs, Model\.get_model_info: install 2\.9",
    ):
        make()


def test_a_missing_package_says_what_to_install(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore_lite", None)

    with pytest.raises(RuntimeFailure, match="MindSpore Lite is not installed for this Python"):
        make()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("decode/decode_graph.mindir", "decode"),
        ("Prefill/model.mindir", "prefill"),
        ("out/qwen_vision.mindir", "vision"),
    ],
)
def test_a_graph_is_known_by_its_name(name: str, kind: str) -> None:
    assert graph_kind(Path(name)) == kind


def test_a_graph_of_no_known_name_is_refused() -> None:
    with pytest.raises(RuntimeFailure, match="named neither after"):
        graph_kind(Path("a/b.mindir"))
