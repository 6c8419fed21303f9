from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array, Lifetime
from q35chat.errors import BundleError, RuntimeFailure
from q35chat.runtimes import cpu
from q35chat.runtimes.onnxruntime import OrtBuffer, OrtSession, _translated
from tests.doubles.numpy_session import FLOAT
from tests.runtimes.conftest import CAPACITY
from tests.support.shapes import SHAPES

IDS = np.array([3, 9, 1, 30, 22, 8])
POSITIONS = np.tile(np.arange(6), (3, 1))


SHAPE = SHAPES["narrow_key"]


@pytest.fixture
def session(text_graph: Path) -> OrtSession:
    return OrtSession(text_graph, threads=1)


@pytest.fixture
def own_graph(text_graph: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(text_graph.parent, tmp_path / "text")) / text_graph.name


def read(session: OrtSession, chunk: int = 128) -> Array:
    logits = extend(OneGraphDecoder(session, chunk=chunk), IDS, POSITIONS)
    assert logits is not None
    return logits.copy()


def test_declared_tensors_and_metadata_are_those_of_the_file(session: OrtSession) -> None:
    inputs = {spec.name: spec for spec in session.inputs}

    assert [spec.name for spec in session.inputs][:2] == ["input_ids", "attention_mask"]
    assert inputs["input_ids"].shape == (1, None)
    assert inputs["attention_mask"].dtype == np.int32
    assert inputs["past_conv_0"].shape == (1, SHAPE.kernel - 1, SHAPE.conv_channels)
    assert session.outputs[0].shape == (1, None, SHAPE.vocab)
    assert session.metadata["q35chat.in_place"] == "past_key_1,past_value_1"


def test_buffers_are_aligned_zeros_that_share_memory_with_the_library() -> None:
    buffer = OrtBuffer((3, 5), FLOAT, Lifetime("text"))
    buffer.write(np.ones((3, 5), FLOAT))

    assert buffer.host().ctypes.data % 64 == 0
    np.testing.assert_array_equal(buffer.native.numpy(), np.ones((3, 5)))
    assert OrtBuffer((2, 0), FLOAT, buffer.life).shape == (2, 0)
    assert OrtBuffer((4,), FLOAT, buffer.life).host().sum() == 0


@pytest.mark.parametrize("array", [np.zeros((2, 2), FLOAT), np.zeros((2, 3), np.float64)])
def test_buffers_refuse_another_shape_or_dtype(array: Array) -> None:
    with pytest.raises(ValueError, match="buffer is float32"):
        OrtBuffer((2, 3), FLOAT, Lifetime("text")).write(array)


@pytest.mark.parametrize("chunk", range(1, 7))
def test_chunks_of_every_length_give_the_same_logits(session: OrtSession, chunk: int) -> None:
    np.testing.assert_allclose(read(session, chunk), read(session), rtol=1e-5, atol=1e-5)


def test_going_back_to_a_snapshot_is_exact(session: OrtSession) -> None:
    engine = OneGraphDecoder(session)
    extend(engine, IDS, POSITIONS)
    snapshot = engine.snapshot()
    first = [engine.step(token).copy() for token in (1, 2, 3)]
    engine.restore(snapshot)

    np.testing.assert_array_equal([engine.step(token).copy() for token in (1, 2, 3)], first)


def test_every_slot_can_be_used(session: OrtSession) -> None:
    engine = OneGraphDecoder(session)
    for token in range(CAPACITY):
        assert np.isfinite(engine.step(token)).all()
    assert engine.used == engine.capacity == CAPACITY


def test_a_step_makes_no_value_and_no_binding(
    session: OrtSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OneGraphDecoder(session)
    extend(engine, IDS, POSITIONS)
    made: list[str] = []
    pluralise(monkeypatch, onnxruntime.OrtValue, "__init__", made)
    pluralise(monkeypatch, onnxruntime.IOBinding, "__init__", made)
    pluralise(monkeypatch, onnxruntime.IOBinding, "bind_ortvalue_input", made)
    pluralise(monkeypatch, onnxruntime.RunOptions, "__init__", made)

    for token in (1, 2, 3, 4):
        engine.step(token)
    assert made == []
    extend(engine, IDS[:2], POSITIONS[:, :2])
    assert made.count("OrtValue.__init__") == 4
    assert made.count("IOBinding.__init__") == 1


def pluralise(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, made: list[str]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        made.append(f"{owner.__name__}.{name}")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def test_a_failing_run_gives_its_cause_on_one_line_and_nothing_on_the_screen(
    session: OrtSession, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = OneGraphDecoder(session)

    with pytest.raises(
        RuntimeFailure, match=r"the text graph failed: .*out of data bounds"
    ) as error:
        engine.step(SHAPE.vocab + 5)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")
    assert engine.used == 0


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x00" * 4096])
def test_a_damaged_file_is_one_line(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(RuntimeFailure, match=r"cannot load .*model\.onnx: ") as error:
        OrtSession(path)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_a_graph_that_does_not_hold_together_is_told_without_the_librarys_own_words(
    own_graph: Path,
) -> None:
    path = own_graph
    path.write_bytes(path.read_bytes().replace(b"input_ids", b"input_idz", 1))

    with pytest.raises(RuntimeFailure) as error:
        OrtSession(path)
    said = str(error.value)
    assert said.startswith(f"cannot load {path}: ")
    assert (said.count(str(path)), "ONNXRuntimeError" in said, ".cc:" in said) == (1, False, False)


def test_missing_weights_are_one_line(own_graph: Path) -> None:
    (own_graph.parent / "model.bin").unlink()

    with pytest.raises(RuntimeFailure, match=r"model\.bin"):
        OrtSession(own_graph)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match=r"gone\.onnx is missing"):
        OrtSession(tmp_path / "gone.onnx")


def test_a_closed_session_refuses_everything(session: OrtSession) -> None:
    engine = OneGraphDecoder(session)
    session.close()

    with pytest.raises(RuntimeFailure, match="the text graph is closed"):
        engine.step(1)
    with pytest.raises(RuntimeFailure, match="the text graph is closed"):
        session.allocate((1,), FLOAT)


def test_the_runtime_of_the_cpu_opens_graphs_here(text_graph: Path) -> None:
    assert isinstance(cpu(threads=1).open_graph(text_graph), OrtSession)


def test_states_have_the_shapes_of_the_contract(session: OrtSession) -> None:
    snapshot = OneGraphDecoder(session).snapshot()

    assert {name: array.shape for name, array in snapshot.states.items()} == {
        "past_conv_0": (1, SHAPE.kernel - 1, SHAPE.conv_channels),
        "past_recurrent_0": (1, SHAPE.nv, SHAPE.dk, SHAPE.dv),
    }


def test_words_of_the_library_that_are_not_utf8_are_one_line() -> None:
    with (
        pytest.raises(RuntimeFailure, match=r"^cannot load x: node \ufffd fails$"),
        _translated("cannot load x"),
    ):
        b"node \xff fails".decode()


def test_a_name_that_is_no_utf8_is_one_line(own_graph: Path) -> None:
    own_graph.write_bytes(own_graph.read_bytes().replace(b"logits_count", b"\xff" * 12))

    with pytest.raises(RuntimeFailure, match=r"^cannot load .*model\.onnx: "):
        OrtSession(own_graph, threads=1)


def test_rows_of_pictures_of_no_fixed_width_are_refused(own_graph: Path) -> None:
    model = onnx.load(own_graph, load_external_data=False)
    (images,) = (one for one in model.graph.input if one.name == "image_embeds")
    images.type.tensor_type.shape.dim[-1].dim_param = "W"
    onnx.save(model, own_graph)

    with pytest.raises(BundleError, match=r"image_embeds .* must be fixed"):
        OneGraphDecoder(OrtSession(own_graph, threads=1))
