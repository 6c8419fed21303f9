from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.states.file import Array, read_state, write_state

WHOLE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ARRAYS: dict[str, Array] = {
    "keys": np.arange(5, dtype=np.int64),
    "half": np.array([1.5, -0.0, np.inf], np.float16),
    "rows": WHOLE[:, :2],
    "none": np.zeros((2, 0, 4), np.float32),
    "flags": np.array([True, False]),
    "bytes": np.array([[-1], [7]], np.int8),
}


def always(_: int) -> bool:
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.state"
    assert write_state(path, ARRAYS.items(), always)
    return path


def resealed(path: Path, change: dict[str, object]) -> None:
    """Change the index's entry of the first array, with a checksum that is right."""
    data = path.read_bytes()[:-8]
    length = int.from_bytes(data[-8:], "little")
    index = json.loads(data[-8 - length : -8])
    index["arrays"][0] |= change
    told = json.dumps(index).encode()
    data = data[: -8 - length] + told + len(told).to_bytes(8, "little")
    path.write_bytes(data + zlib.crc32(data).to_bytes(8, "little"))


def test_what_is_read_is_to_the_bit_what_was_written(path: Path) -> None:
    found = read_state(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    assert read_state(path, checked=False).keys() == found.keys()


def test_only_its_owner_can_read_it_and_nothing_else_is_left(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_arrays_that_are_mapped_cannot_be_written(path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        read_state(path)["keys"][0] = 9


@pytest.mark.parametrize("place", [0, 20, 100, 300, -200, -40, -20, -1])
def test_one_changed_byte_is_seen(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"."):
        read_state(path)


@pytest.mark.parametrize("length", [0, 1, 15, 60, -33, -9, -1])
def test_a_file_that_was_cut_is_seen(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"."):
        read_state(path)


@given(st.binary(max_size=400))
def test_whatever_stands_in_a_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.state"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"."):
        read_state(path)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1 << 40},
        {"offset": -64},
        {"offset": "0"},
        {"shape": [1 << 40]},
        {"shape": [1 << 62, 1 << 62]},
        {"shape": [-1]},
        {"shape": None},
        {"dtype": "|O"},
        {"dtype": ["<f4"]},
    ],
)
def test_an_index_that_leads_out_of_the_file_is_refused_though_its_checksum_is_right(
    path: Path, change: dict[str, object]
) -> None:
    resealed(path, {})
    assert "keys" in read_state(path)
    resealed(path, change)
    with pytest.raises(ValueError, match="index"):
        read_state(path)


def test_what_is_no_file_is_refused_at_once(path: Path) -> None:
    link, pipe = path.with_name("link"), path.with_name("pipe")
    link.symlink_to(path)
    os.mkfifo(pipe)
    for other in (link, pipe, path.parent):
        with pytest.raises((OSError, ValueError)):
            read_state(other)


def test_a_state_that_is_stopped_or_fails_leaves_nothing(path: Path) -> None:
    def failing() -> Iterator[tuple[str, Array]]:
        yield "keys", ARRAYS["keys"]
        raise MemoryError

    before = path.read_bytes()
    assert not write_state(path, ARRAYS.items(), lambda written: written < 200)
    with pytest.raises(MemoryError):
        write_state(path, failing(), always)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
