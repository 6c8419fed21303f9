from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array, Buffer, Lifetime
from q35chat.errors import RuntimeFailure
from q35chat.runtimes import cpu
from q35chat.runtimes.onnxruntime import OrtBuffer, OrtSession
from tests.doubles.numpy_session import FLOAT, NumpyBuffer
from tests.doubles.onnx_text import CAPACITY, STATES, VOCAB, WIDTH, write_text_graph

IDS = np.array([3, 9, 1, 30, 22, 8])
POSITIONS = np.tile(np.arange(6), (3, 1))


@pytest.fixture
def session(tmp_path: Path) -> OrtSession:
    return OrtSession(write_text_graph(tmp_path / "text" / "model.onnx"), threads=1)


def read(session: OrtSession, chunk: int = 128) -> Array:
    logits = extend(OneGraphDecoder(session, chunk=chunk), IDS, POSITIONS)
    assert logits is not None
    return logits.copy()


def test_declared_tensors_and_metadata_are_those_of_the_file(session: OrtSession) -> None:
    inputs = {spec.name: spec for spec in session.inputs}

    assert [spec.name for spec in session.inputs][:2] == ["input_ids", "attention_mask"]
    assert inputs["input_ids"].shape == (1, None)
    assert inputs["attention_mask"].dtype == np.int32
    assert inputs["past_conv_0"].shape == (1, WIDTH, 3)
    assert session.outputs[0].shape == (1, 1, VOCAB)
    assert session.metadata["q35chat.in_place"] == "past_key_1,past_value_1"


def test_buffers_are_aligned_zeros_that_share_memory_with_the_library() -> None:
    buffer = OrtBuffer((3, 5), FLOAT, Lifetime("text"))
    buffer.write(np.ones((3, 5), FLOAT))

    assert buffer.host().ctypes.data % 64 == 0
    np.testing.assert_array_equal(buffer.value.numpy(), np.ones((3, 5)))
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


def test_weights_beside_the_graph_are_found(tmp_path: Path, session: OrtSession) -> None:
    path = write_text_graph(tmp_path / "external" / "model.onnx", external=True)

    assert (path.parent / "weights.data").stat().st_size > 0
    np.testing.assert_array_equal(read(OrtSession(path)), read(session))


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
    assert made.count("OrtValue.__init__") == 3
    assert made.count("IOBinding.__init__") == 2


def pluralise(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, made: list[str]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        made.append(f"{owner.__name__}.{name}")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def test_a_state_read_and_written_in_one_run_is_refused(tmp_path: Path) -> None:
    session = OrtSession(write_text_graph(tmp_path / "model.onnx", in_place=False))
    inputs, outputs = buffers(session)
    outputs["present_key_1"] = inputs["past_key_1"]

    with pytest.raises(ValueError, match="past_key_1 would be read and written in one run"):
        session.bind(inputs, outputs)


def buffers(session: OrtSession) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
    """One for each input, one for each output."""
    inputs, outputs = (
        {spec.name: session.allocate(concrete(spec.shape), spec.dtype) for spec in specs}
        for specs in (session.inputs, session.outputs)
    )
    return inputs, outputs


def concrete(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(axis or 1 for axis in shape)


def test_a_forgotten_tensor_is_named(session: OrtSession) -> None:
    with pytest.raises(ValueError, match="not bound one to one: attention_mask"):
        session.bind({"input_ids": session.allocate((1, 1), np.dtype(np.int64))}, {})


def test_a_buffer_of_another_runtime_is_refused(session: OrtSession) -> None:
    inputs = {spec.name: NumpyBuffer(np.zeros(concrete(spec.shape))) for spec in session.inputs}
    outputs = {spec.name: NumpyBuffer(np.zeros(concrete(spec.shape))) for spec in session.outputs}

    with pytest.raises(TypeError, match="buffer of ONNX Runtime is needed, got NumpyBuffer"):
        session.bind(inputs, outputs)


def test_a_failing_run_gives_its_cause_on_one_line_and_nothing_on_the_screen(
    session: OrtSession, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = OneGraphDecoder(session)

    with pytest.raises(
        RuntimeFailure, match=r"the text graph failed: .*out of data bounds"
    ) as error:
        engine.step(VOCAB + 5)
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
    tmp_path: Path,
) -> None:
    path = write_text_graph(tmp_path / "model.onnx", external=True)
    path.write_bytes(path.read_bytes().replace(b"input_ids", b"input_idz", 1))

    with pytest.raises(RuntimeFailure) as error:
        OrtSession(path)
    said = str(error.value)
    assert said.startswith(f"cannot load {path}: ")
    assert (said.count(str(path)), "ONNXRuntimeError" in said, ".cc:" in said) == (1, False, False)


def test_missing_weights_are_one_line(tmp_path: Path) -> None:
    path = write_text_graph(tmp_path / "model.onnx", external=True)
    (tmp_path / "weights.data").unlink()

    with pytest.raises(RuntimeFailure, match=r"weights\.data"):
        OrtSession(path)


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


def test_the_runtime_of_the_cpu_opens_graphs_here(tmp_path: Path) -> None:
    path = write_text_graph(tmp_path / "model.onnx")

    assert isinstance(cpu(threads=1).open_graph(path), OrtSession)


def test_states_have_the_shapes_of_the_contract(session: OrtSession) -> None:
    snapshot = OneGraphDecoder(session).snapshot()

    assert {name: array.shape for name, array in snapshot.states.items()} == {
        f"past_{name}": shape for name, shape in STATES.items()
    }
