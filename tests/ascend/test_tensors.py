from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from q35chat.ascend.native_log import NativeLog
from q35chat.ascend.tensors import (
    DeviceBuffer,
    DeviceMemoryError,
    LiteHostBuffer,
    lite_type,
    numpy_type,
)
from q35chat.engine.session import Lifetime
from q35chat.errors import RuntimeFailure
from tests.doubles import mindspore_lite as lite
from tests.doubles.mindspore_lite.npu import Npu

FLOAT = np.dtype(np.float32)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[NativeLog]:
    """To be installed by the test itself: pytest's capture takes descriptor 2 between phases."""
    log = NativeLog(tmp_path / "native.log")
    yield log
    log.remove()


def on_device(log: NativeLog, *shape: int) -> DeviceBuffer:
    log.install()
    return DeviceBuffer(lite, shape, FLOAT, Lifetime("toy"), "ascend:0", log)


def on_host(*shape: int) -> LiteHostBuffer:
    return LiteHostBuffer(lite, shape, FLOAT, Lifetime("toy"))


def test_fresh_device_memory_is_zeros_not_what_lay_there(npu: Npu, log: NativeLog) -> None:
    assert on_device(log, 2, 3).host().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_device_without_room_is_told_with_numbers(npu: Npu, log: NativeLog) -> None:
    npu.limit = npu.used + 100

    with pytest.raises(DeviceMemoryError, match=r"ascend:0 has no room for 4\.0 MiB .*Malloc"):
        on_device(log, 1024, 1024)


def test_a_block_that_could_not_be_filled_is_given_back_while_the_error_is_kept(
    npu: Npu, log: NativeLog
) -> None:
    before, npu.fail_uploads = npu.used, 1

    with pytest.raises(RuntimeFailure, match="cannot copy to the NPU") as kept:
        on_device(log, 2)
    assert (npu.used, kept.value.__traceback__ is None) == (before, False)


def test_a_failed_upload_is_an_error(npu: Npu, log: NativeLog) -> None:
    buffer = on_device(log, 2)
    npu.fail_uploads = 1

    with pytest.raises(RuntimeFailure, match=r"cannot copy to the NPU: copy to device failed; log"):
        buffer.write(np.ones(2, np.float32))


@pytest.mark.parametrize("kind", ["host", "device"])
def test_arrays_in_any_order_of_memory_arrive_whole(npu: Npu, log: NativeLog, kind: str) -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    buffer = on_device(log, 3, 2) if kind == "device" else on_host(3, 2)
    buffer.write(turned)

    np.testing.assert_array_equal(buffer.host(), turned)


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize(
    "array", [np.zeros((6,), np.float32), np.zeros((3, 2)), np.zeros((2, 3), np.float32)]
)
def test_what_the_library_would_take_silently_is_refused(
    npu: Npu, log: NativeLog, kind: str, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    buffer = on_device(log, 3, 2) if kind == "device" else on_host(3, 2)

    with pytest.raises(ValueError, match=r"buffer is float32\(3, 2\), array is"):
        buffer.write(array)


def test_a_host_buffer_is_read_by_the_library_where_it_lies(npu: Npu) -> None:
    buffer = on_host(2)
    buffer.write(np.array([1, 2], np.float32))

    assert buffer.native.get_data_to_numpy().tolist() == [1, 2]


def test_types_are_translated_both_ways() -> None:
    for kind in (np.float16, np.float32, np.int32, np.int64, np.bool_):
        assert numpy_type(lite_type(lite, np.dtype(kind)), "x") == kind


def test_bfloat16_is_no_type_of_the_library() -> None:
    with pytest.raises(RuntimeFailure, match="past_kv_cache has type bfloat16"):
        numpy_type(None, "past_kv_cache")
    with pytest.raises(RuntimeFailure, match="no tensors of complex64"):
        lite_type(lite, np.dtype(np.complex64))
