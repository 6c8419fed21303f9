"""What every runtime refuses to bind, and what a closed session leaves: nothing, however much still
refers to it, and one line to whoever uses it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from q35chat.ascend.mindspore_lite import LiteSession
from q35chat.ascend.native_log import NativeLog
from q35chat.ascend.options import NpuOptions
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import BoundRun, Buffer, GraphSession
from q35chat.errors import RuntimeFailure
from q35chat.runtimes.onnxruntime import OrtSession
from tests.doubles.mindspore_lite.modelfile import write_model
from tests.doubles.mindspore_lite.npu import Npu
from tests.doubles.numpy_session import NumpyBuffer
from tests.support.shapes import SHAPES

FLOAT = np.dtype(np.float32)
IDS, POSITIONS = np.array([3, 9, 1, 30]), np.tile(np.arange(4), (3, 1))
NEEDED = "the counter graph is closed: open the bundle again"
WEIGHTS_MIB = 96

Open = Callable[[], GraphSession]


def write_counter(path: Path) -> Path:
    """`present_sum` is `past_sum` and `numbers` together, as ONNX."""
    past, numbers, present = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("past_sum", "numbers", "present_sum")
    )
    add = helper.make_node("Add", ["past_sum", "numbers"], ["present_sum"])
    graph = helper.make_graph([add], "counter", [numbers, past], [present])
    path.parent.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                ir_version=10), path)  # fmt: skip
    return path


@pytest.fixture(params=["ONNX Runtime", "on the NPU", "on the host"])
def open_graph(request: pytest.FixtureRequest, tmp_path: Path, npu: Npu) -> Iterator[Open]:
    """Opens the same counter with each runtime, as often as it is asked."""
    log = NativeLog(tmp_path / "native.log")

    def open_lite() -> GraphSession:
        device = NpuOptions(host_state_roundtrip=request.param == "on the host")
        path = write_model(tmp_path / "m.mindir", "tests.doubles.toy_graphs:counter", {})
        return LiteSession(path, "counter", device, log)

    if request.param == "ONNX Runtime":
        path = write_counter(tmp_path / "counter" / "model.onnx")
        yield lambda: OrtSession(path, threads=1)
    else:
        yield open_lite
        log.remove()


def bound(session: GraphSession, *owners: GraphSession) -> tuple[BoundRun, dict[str, Buffer]]:
    """A run of `session` over buffers of the `owners`, in turn, and all those buffers."""
    every = owners or (session,)
    inputs, outputs = (
        {spec.name: every[at % len(every)].allocate((1, 4), FLOAT) for at, spec in enumerate(specs)}
        for specs in (session.inputs, session.outputs)
    )
    if "double" in outputs:
        outputs["double"] = session.allocate((1, 1), FLOAT)
    return session.bind(inputs, outputs), inputs | outputs


def test_a_buffer_read_and_written_in_one_run_is_refused(open_graph: Open) -> None:
    session = open_graph()
    _, buffers = bound(session)
    inputs = {spec.name: buffers[spec.name] for spec in session.inputs}
    outputs = {spec.name: buffers[spec.name] for spec in session.outputs}

    with pytest.raises(ValueError, match="past_sum would be read and written in one run"):
        session.bind(inputs, outputs | {"present_sum": buffers["past_sum"]})


def test_tensors_are_bound_one_to_one_to_buffers_of_their_runtime(open_graph: Open) -> None:
    session = open_graph()
    inputs, outputs = (
        {spec.name: NumpyBuffer(np.zeros((1, 4), FLOAT)) for spec in specs}
        for specs in (session.inputs, session.outputs)
    )

    with pytest.raises(ValueError, match="not bound one to one: numbers, past_sum"):
        session.bind({}, {})
    with pytest.raises(TypeError, match=r"buffer of .* is needed, got NumpyBuffer"):
        session.bind(inputs, outputs)


def told(use: Callable[[], object]) -> str:
    with pytest.raises(RuntimeFailure) as error:
        use()
    return str(error.value)


def test_every_use_of_what_a_closed_session_made_is_one_line(open_graph: Open) -> None:
    session = open_graph()
    run, buffers = bound(session)
    run()
    buffer, array = buffers["past_sum"], np.ones((1, 4), FLOAT)
    session.close()

    uses: tuple[Callable[[], object], ...] = (
        run,
        buffer.host,
        lambda: buffer.write(array),
        lambda: session.allocate((1, 4), FLOAT),
        lambda: bound(session, open_graph()),
    )
    assert [told(use) for use in uses] == [NEEDED] * len(uses)
    assert (buffer.shape, buffer.dtype) == ((1, 4), FLOAT)


def test_closing_twice_is_as_good_as_once(open_graph: Open) -> None:
    session = open_graph()
    bound(session)[0]()
    session.close()
    session.close()


def test_a_run_over_a_buffer_of_a_closed_session_is_refused_and_its_own_session_goes_on(
    open_graph: Open, npu: Npu
) -> None:
    session, owner = open_graph(), open_graph()
    run, buffers = bound(session, owner)
    mine, kept = bound(session)
    run()
    owner.close()

    assert told(run) == NEEDED
    assert told(lambda: bound(session, owner)) == NEEDED
    kept["numbers"].write(np.full((1, 4), 2, FLOAT))
    mine()
    assert kept["present_sum"].host().max() >= 2
    assert (len(buffers), npu.dangling) == (len(kept), 0)


def test_what_a_run_is_bound_to_stays_as_long_as_the_run(open_graph: Open) -> None:
    session = open_graph()
    run, buffers = bound(session)
    held = [weakref.ref(buffer) for buffer in buffers.values()]
    del buffers
    gc.collect()
    run()

    assert all(buffer() is not None for buffer in held)


@pytest.fixture
def text(text_graph: Path) -> OrtSession:
    return OrtSession(text_graph, threads=1)


def native(session: OrtSession) -> weakref.ref[object]:
    assert session._session is not None
    return weakref.ref(session._session._sess)


def test_a_closed_decoder_frees_the_native_graph_while_everything_still_refers_to_it(
    text: OrtSession,
) -> None:
    graph, decoder = native(text), OneGraphDecoder(text)
    extend(decoder, IDS, POSITIONS)
    logits, snapshot = decoder.step(5), decoder.snapshot()
    held = [weakref.ref(buffer.host()) for buffer in decoder._states.inputs(0).values()]
    decoder.close()

    assert graph() is None
    assert [array() for array in held] == [None] * len(held)
    assert np.isfinite(logits).all()
    assert told(lambda: decoder.step(1)) == "the text graph is closed: open the bundle again"
    assert told(lambda: decoder.restore(snapshot)).startswith("the text graph is closed")


def test_the_error_of_a_run_that_failed_keeps_no_graph(text: OrtSession) -> None:
    graph, decoder = native(text), OneGraphDecoder(text)
    with pytest.raises(RuntimeFailure, match="out of data bounds") as kept:
        decoder.step(SHAPES["narrow_key"].vocab + 5)
    decoder.close()

    assert (graph(), kept.value.__cause__ is None) == (None, False)


def test_a_graph_that_cannot_be_described_is_freed_while_the_error_is_kept(
    text_graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[object]] = []
    describe = OrtSession._describe

    def seen(session: OrtSession) -> None:
        made.append(native(session))
        describe(session)

    monkeypatch.setattr(OrtSession, "_describe", seen)
    monkeypatch.setattr("q35chat.runtimes.onnxruntime._DTYPES", {})
    with pytest.raises(RuntimeFailure, match="cannot hold") as kept:
        OrtSession(text_graph)

    assert ([graph() for graph in made], kept.value.__traceback__ is None) == ([None], False)


CHILD = """
import resource
import sys
from pathlib import Path
import numpy as np
from q35chat.runtimes.onnxruntime import OrtSession

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20

before = resident()
session = OrtSession(Path(sys.argv[1]), threads=1)
shape, dtype = session.inputs[0].shape, session.inputs[0].dtype
buffers = {"x": session.allocate(shape, dtype)}, {"y": session.allocate(shape, dtype)}
run = session.bind(*buffers)
run()
loaded = resident()
session.close()
print(loaded - before, resident() - before)
"""


def test_the_memory_of_a_closed_session_goes_back_to_the_system(tmp_path: Path) -> None:
    rows, width = WEIGHTS_MIB << 8, 1 << 10
    weights = numpy_helper.from_array(np.ones((rows, width), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, width]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y],
                              [weights])  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                ir_version=10), path)  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
    )
    loaded, left = map(int, done.stdout.split())

    assert loaded > 2 * WEIGHTS_MIB
    assert left < WEIGHTS_MIB / 2
