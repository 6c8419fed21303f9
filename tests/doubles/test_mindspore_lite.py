from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles import mindspore_lite as lite
from tests.doubles.lite import release
from tests.doubles.mindspore_lite.modelfile import variables_of, write_model
from tests.doubles.mindspore_lite.npu import Npu

TOY = "tests.doubles.toy_graphs:"
FLOAT = np.float32


def model_file(path: Path, graph: str = "counter", dims: str = "", **arguments: Any) -> Path:
    shape = "numbers:1,-1;past_sum:1,4" if dims else ""
    return write_model(path, TOY + graph, arguments, input_shape=shape, dynamic_dims=dims)


def build(path: Path, target: str = "ascend", provider: str = "") -> lite.Model:
    context = lite.Context()
    context.target = [target]
    context.ascend.provider = provider
    model = lite.Model()
    model.build_from_file(str(path), lite.ModelType.MINDIR, context)
    return model


def on_device(*shape: int) -> lite.Tensor:
    return lite.Tensor(shape=list(shape), dtype=lite.DataType.FLOAT32, device="ascend:0")


def feeds(count: int = 3) -> list[lite.Tensor]:
    return [lite.Tensor(np.ones((1, count), FLOAT)), lite.Tensor(np.ones((1, 4), FLOAT))]


def test_outputs_are_written_into_the_callers_device_tensors(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    outputs = [on_device(1, 1), on_device(1, 4)]
    returned = model.predict(feeds(), outputs)

    assert returned[1]._tensor is outputs[1]._tensor
    assert npu.downloaded == 0
    np.testing.assert_array_equal(outputs[1].get_data_to_numpy(), np.full((1, 4), 4))
    assert npu.downloaded == 16


@pytest.mark.parametrize(("version", "warnings"), [("2.9.0", 1), ("2.11.0", 0)])
def test_the_newer_wheel_finds_its_own_kernels_and_the_older_warns(
    npu: Npu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: str,
    warnings: int,
) -> None:
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    release(version, tmp_path, monkeypatch)
    build(model_file(tmp_path / "m.mindir"))

    assert lite.__version__ == version
    assert caplog.messages == ["Ascend custom operator path not found"] * warnings


def test_outputs_that_are_refused_leave_a_model_that_only_a_rebuild_helps(
    npu: Npu, tmp_path: Path
) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    npu.given_outputs = "refuse"
    for outputs in ([on_device(1, 1), on_device(1, 4)], None):
        with pytest.raises(RuntimeError, match="predict failed!"):
            model.predict(feeds(), outputs)

    assert len(build(tmp_path / "m.mindir").predict(feeds())) == 2


def test_a_cpu_gives_the_callers_tensors_back_unwritten(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"), target="cpu")
    given = [lite.Tensor(np.zeros((1, 1), FLOAT)), lite.Tensor(np.zeros((1, 4), FLOAT))]

    assert model.predict(feeds(), given)[1].get_data_to_numpy().sum() == 0
    assert model.predict(feeds())[1].get_data_to_numpy().sum() == 16


def test_provider_ge_leaves_the_device_side_stale(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"), provider="ge")
    output = on_device(1, 4)
    output.set_data_from_numpy(np.full((1, 4), 9, FLOAT))
    model.predict(feeds(), [on_device(1, 1), output])

    assert output.get_data_to_numpy().tolist() == [[9, 9, 9, 9]]


def test_results_are_views_that_the_next_predict_overwrites(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    first = model.predict(feeds(1))[1].get_data_to_numpy()
    model.predict(feeds(5))

    assert first.tolist() == [[6, 6, 6, 6]]


def test_inputs_are_matched_by_position_alone(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir", length=4))
    swapped = [lite.Tensor(np.full((1, 4), 2, FLOAT)), lite.Tensor(np.zeros((1, 4), FLOAT))]
    swapped[0].name, swapped[1].name = "past_sum", "numbers"

    assert model.predict(swapped)[1].get_data_to_numpy().tolist() == [[8, 8, 8, 8]]


def test_as_many_bytes_in_another_shape_are_taken(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir", length=4))
    odd = [lite.Tensor(np.ones((2, 2), FLOAT)), lite.Tensor(np.zeros((4, 1), FLOAT))]

    assert model.predict(odd)[1].get_data_to_numpy().tolist() == [[4, 4, 4, 4]]


def test_a_wrong_shape_poisons_the_model_until_its_own_tensors_are_fed(
    npu: Npu, tmp_path: Path
) -> None:
    model = build(model_file(tmp_path / "m.mindir", length=3))
    with pytest.raises(RuntimeError, match=r"^predict failed!$"):
        model.predict(feeds(2))
    with pytest.raises(RuntimeError, match=r"^predict failed!$"):
        model.predict(feeds(3))

    model.predict(model.get_inputs())
    model.predict(feeds(3))


def test_only_gears_are_accepted(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir", dims="2;5"))
    assert model.get_model_info("dynamic_dims") == "2;5"
    assert model.get_model_info("no such key") == ""

    model.predict(feeds(5))
    with pytest.raises(RuntimeError, match="resize failed! Error is"):
        model.resize(model.get_inputs(), [[1, 3], [1, 4]])
    with pytest.raises(RuntimeError, match="predict failed!"):
        model.predict(feeds(5))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([lite.DataType.FLOAT16, lite.DataType.FLOAT32], "predict failed!"),
        ([lite.DataType.FLOAT32], "predict failed!"),
    ],
)
def test_outputs_of_another_dtype_or_number_fail(
    npu: Npu, tmp_path: Path, given: list[lite.DataType], message: str
) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    shapes = [[1, 1], [1, 4]]
    outputs = [
        lite.Tensor(shape=s, dtype=t, device="ascend") for s, t in zip(shapes, given, strict=False)
    ]

    with pytest.raises(RuntimeError, match=message):
        model.predict(feeds(), outputs)


def test_reading_and_writing_one_buffer_is_not_refused_but_wrong(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    state = on_device(1, 4)
    state.set_data_from_numpy(np.zeros((1, 4), FLOAT))
    model.predict([feeds()[0], state], [on_device(1, 1), state])

    assert npu.aliased == 1
    assert state.get_data_to_numpy()[0, 0] != 3


def test_output_tensors_must_outlive_the_model(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    model.predict(feeds(), [on_device(1, 1), on_device(1, 4)])

    with pytest.raises(SystemError, match="use after free"):
        model.predict(feeds())


def test_a_full_device_gives_no_tensor_and_no_exception(npu: Npu) -> None:
    npu.limit = npu.used + 8

    assert on_device(1, 1)._tensor is not None
    assert on_device(1, 4)._tensor is None
    with pytest.raises(AttributeError, match="NoneType"):
        _ = on_device(1, 4).shape


def test_an_array_in_fortran_order_gives_no_tensor_and_is_no_data(npu: Npu) -> None:
    turned = np.arange(6, dtype=FLOAT).reshape(2, 3).T
    tensor = lite.Tensor(np.zeros((3, 2), FLOAT))
    tensor.set_data_from_numpy(turned)

    assert lite.Tensor(turned)._tensor is None
    assert tensor.get_data_to_numpy().sum() == 0


def test_a_host_tensor_shares_memory_with_its_array(npu: Npu) -> None:
    array = np.zeros(3, FLOAT)
    tensor = lite.Tensor(array)
    array[:] = 7

    assert tensor.get_data_to_numpy().tolist() == [7, 7, 7]
    assert tensor.device == "None:-1"


def test_dtype_and_bytes_are_checked_but_not_the_shape(npu: Npu) -> None:
    tensor = on_device(2, 2)
    tensor.set_data_from_numpy(np.zeros(4, FLOAT))
    with pytest.raises(
        RuntimeError, match=r"data type not equal! Numpy type: <class 'numpy.float64'>"
    ):
        tensor.set_data_from_numpy(np.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="data size not equal! Numpy size: 12, Tensor size: 16"):
        tensor.set_data_from_numpy(np.zeros(3, FLOAT))


def test_a_failed_upload_raises_nothing(npu: Npu, capfd: pytest.CaptureFixture[str]) -> None:
    tensor = on_device(2)
    npu.fail_uploads = 1
    tensor.set_data_from_numpy(np.ones(2, FLOAT))

    assert tensor.get_data_to_numpy().tolist() != [1, 1]
    assert "copy to device failed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shape": [np.int64(2)], "dtype": lite.DataType.INT32}, "shape element must be int"),
        ({"device": "gpu"}, "now only support ascend device."),
        ({"device": "ascend:-1"}, "device id should >= 0."),
        ({"device": "ascend:x"}, "device must be 'ascend:index'"),
    ],
)
def test_arguments_are_checked(npu: Npu, arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        lite.Tensor(**arguments)


def test_context_settings_are_checked() -> None:
    context = lite.Context()
    with pytest.raises(ValueError, match=r"must be in \['cpu', 'gpu', 'ascend'\], but got npu"):
        context.target = ["npu"]
    with pytest.raises(ValueError, match="ascend_device_id must be a non-negative int"):
        context.ascend.device_id = -1


def test_a_build_tells_its_cause_only_on_descriptor_2(
    npu: Npu, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = model_file(tmp_path / "m_graph.mindir")
    build(path)
    (variables_of(path) / "data_0").unlink()
    with pytest.raises(RuntimeError, match="build_from_file failed! Error is Common error code"):
        build(path)
    assert "GetTensorDataFromExternal" in capfd.readouterr().err
    npu.cann = False
    with pytest.raises(RuntimeError, match="Common error code"):
        build(path)
    assert "libascend_kernel_plugin" in capfd.readouterr().err


def test_a_path_must_be_a_text_of_a_file(npu: Npu, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="model_path must be str, but got"):
        lite.Model().build_from_file(tmp_path, lite.ModelType.MINDIR)
    with pytest.raises(RuntimeError, match="model_path does not exist!"):
        build(tmp_path / "gone.mindir")


def test_weights_take_memory_of_the_device(npu: Npu, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.mindir", TOY + "counter", {}, weights=1000)
    before = npu.used
    model = build(path)
    assert npu.used == before + 1000
    del model
    assert npu.used == before
    npu.limit = before + 500
    with pytest.raises(RuntimeError, match="Common error code"):
        build(path)


def test_a_predict_without_room_says_so_and_the_model_is_poisoned(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    npu.limit, npu.workspace = npu.used + 100, 200
    for _ in range(2):
        with pytest.raises(RuntimeError, match="predict failed!"):
            model.predict(feeds())
        npu.workspace = 0


def test_an_output_tensor_that_goes_before_its_model_is_counted(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))
    outputs = [on_device(1, 1), on_device(1, 4)]
    model.predict(feeds(), outputs)
    del outputs[0]
    gone = npu.dangling
    del model, outputs

    assert (gone, npu.dangling) == (1, 1)


def test_the_number_of_inputs_is_checked(npu: Npu, tmp_path: Path) -> None:
    model = build(model_file(tmp_path / "m.mindir"))

    with pytest.raises(RuntimeError, match="model input len:1 not equal input len:2!"):
        model.predict(feeds()[:1])
    with pytest.raises(TypeError, match="outputs must be list"):
        model.predict(feeds(), (on_device(1, 1), on_device(1, 4)))
