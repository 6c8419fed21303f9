"""The safetensors files of a checkpoint: which they are, their headers, and slices of their tensors
as FP32.

Reads with plain file reads, not a memory map, so that the pages of a large checkpoint never
count as this process's memory. Must not know what the tensors mean.
Format: 8 bytes little-endian header length, that many bytes of JSON, then the data
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from q35chat.errors import CheckpointError
from q35chat.json_reader import parse_json, read_json

Float32 = npt.NDArray[np.float32]

# How the bytes are read; bfloat16 is the upper half of a float32.
_READ_AS: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
_MAX_HEADER = 100_000_000
_MOST = 2**63 - 1
_MOST_SIDES = 64
_SINGLE = "model.safetensors"
_SHOWN = 60
NOT_GGUF = (
    "export reads the safetensors of the original checkpoint, in bf16, fp16 or fp32: give that one"
)
MERGE_FIRST = (
    "merge it into its model first (merge_and_unload of PEFT, then save_pretrained), and give the "
    "folder of the whole model"
)
_INDEX = "model.safetensors.index.json"
GONE = ".q35chat-consumed"
"""The list of files that an export has deleted, in the folder where they were."""
_NUMBERED = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.safetensors")


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: `offset` is from the start of the file, in bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int

    @property
    def readable(self) -> bool:
        """Whether the element type is one that `read_rows` understands."""
        return self.dtype in _READ_AS


@dataclass(frozen=True, slots=True)
class Gone:
    """Files that an export deleted as it consumed them: their tensors by file and name, and what
    the folder's fingerprint was before."""

    fingerprint: str = ""
    files: Mapping[str, Mapping[str, TensorEntry]] = field(default_factory=dict)


def read_gone(folder: Path) -> Gone:
    """What was deleted from `folder`; nothing where there is no list of it.

    Raises CheckpointError for a list that is damaged.
    """
    path = folder / GONE
    if not path.is_file():
        return Gone()
    try:
        listed = read_json(path)
        files = {
            Path(file).name: {
                str(name): TensorEntry(folder / Path(file).name, str(dtype), _shape(shape), 0, 0)
                for name, (dtype, shape) in tensors.items()
            }
            for file, tensors in listed["files"].items()
        }
        return Gone(str(listed["fingerprint"]), files)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error or type(error).__name__}); download the checkpoint "
            "again, into an empty folder"
        ) from error


def weight_files(folder: Path, gone: Collection[str] = ()) -> tuple[Path, ...]:
    """The safetensors files of the checkpoint, in name order, those that are `gone` among them.

    A single `model.safetensors` wins over an index, an index over a plain listing. Raises
    CheckpointError for a folder that is missing, has no weights, or lacks some of them.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: give the folder of a Qwen3.5 checkpoint")
    if (folder / _SINGLE).is_file() or _SINGLE in gone:
        return (folder / _SINGLE,)
    names = _indexed(folder) if (folder / _INDEX).is_file() else _listed(folder)
    missing = [name for name in names if name not in gone and not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} is half-downloaded: {len(missing)} of {len(names)} weight files are missing "
            f"({missing[0]}{', …' if len(missing) > 1 else ''}); download the checkpoint again"
        )
    return tuple(folder / name for name in names)


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of the file at `path`, by the names it uses.

    Raises CheckpointError for a file that is not safetensors, or shorter or longer than its
    header says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start, header = _read_json(path, file, size)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    entries = {
        name: _entry(path, name, value, start)
        for name, value in header.items()
        if name != "__metadata__"
    }
    expected = max((entry.offset + entry.length for entry in entries.values()), default=start)
    if size != expected:
        state = "truncated" if size < expected else "damaged"
        raise CheckpointError(
            f"{path} is {state}: it has {size:,} bytes, its header says {expected:,}; "
            "download it again"
        )
    return entries


def read_rows(entry: TensorEntry, start: int, stop: int) -> Float32:
    """`tensor[start:stop]` along the first axis; the only bytes read are those of the slice.

    A scalar counts as one row. Raises CheckpointError when the file cannot be read.
    """
    dtype = _READ_AS[entry.dtype]
    row = math.prod(entry.shape[1:]) * dtype.itemsize
    raw = np.empty((stop - start) * row, np.uint8)
    try:
        with FileIO(entry.path) as file:
            file.seek(entry.offset + start * row)
            view = raw.data
            while view:
                got = file.readinto(view)
                if not got:
                    raise CheckpointError(f"{entry.path} became shorter while it was read")
                view = view[got:]
    except OSError as error:
        raise CheckpointError(f"{entry.path} cannot be read: {error.strerror}") from error
    shape = (stop - start, *entry.shape[1:]) if entry.shape else ()
    return _float32(raw.view(dtype), entry.dtype).reshape(shape)


def _float32(raw: npt.NDArray[Any], dtype: str) -> Float32:
    if dtype == "BF16":
        wide = raw.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return raw.astype(np.float32, copy=False)


def _read_json(path: Path, file: BufferedReader, size: int) -> tuple[int, Mapping[str, object]]:
    """The position of the first data byte, and the parsed header."""
    first = file.read(8)
    if first.startswith(b"version "):
        raise CheckpointError(
            f"{path} is a Git LFS pointer of {size:,} bytes, not the weights; run `git lfs pull`"
        )
    length = int.from_bytes(first, "little")
    if len(first) == 8 and 2 <= length <= _MAX_HEADER and size < 8 + length:
        raise CheckpointError(
            f"{path} is truncated: it has {size:,} bytes, its header alone has {length:,}; "
            "download it again"
        )
    try:
        header = parse_json(file.read(length)) if 2 <= length <= _MAX_HEADER else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(
            f"{path} ({size:,} bytes) is not a safetensors file, or its start was lost; "
            "download it again"
        )
    return 8 + length, header


def _entry(path: Path, name: str, value: object, start: int) -> TensorEntry:
    try:
        fields = dict(value)  # type: ignore[call-overload]
        shape = _shape(fields["shape"])
        begin, end = (_whole(offset) for offset in fields["data_offsets"])
        entry = TensorEntry(path, str(fields["dtype"]), shape, start + begin, end - begin)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path}: the header entry of {name} is damaged") from None
    fits = not entry.readable or entry.length == math.prod(shape) * _READ_AS[entry.dtype].itemsize
    if begin < 0 or end < begin or min(shape, default=0) < 0 or not fits:
        raise CheckpointError(
            f"{path}: the header gives {name} {end - begin:,} bytes, "
            f"which does not fit {entry.dtype} {list(shape)}; download it again"
        )
    return entry


def _shape(sides: Iterable[object]) -> tuple[int, ...]:
    shape = tuple(_whole(side) for side in sides)
    if len(shape) > _MOST_SIDES:
        raise ValueError(len(shape))
    return shape


def _whole(value: object) -> int:
    """A number of elements or bytes; ValueError for what can be none."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST:
        raise ValueError(value)
    return value


def _indexed(folder: Path) -> list[str]:
    path = folder / _INDEX
    try:
        names = set(read_json(path)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error or type(error).__name__}); download it again"
        ) from error
    strange = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if strange or not names:
        found = repr(strange[0]) if strange else "no files"
        raise CheckpointError(f"{path} names {found} instead of files beside it; download it again")
    return sorted(names)


def _listed(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise no_checkpoint(folder)
    numbered = _NUMBERED.fullmatch(names[0])
    if numbered is None:
        return names
    count = int(numbered["count"])
    return [f"{numbered['stem']}-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def no_checkpoint(folder: Path, lacking: str = "safetensors files") -> CheckpointError:
    """What the folder is instead of a whole checkpoint, and what to give."""
    adapter = folder / "adapter_config.json"
    unfinished = sum(1 for _ in folder.rglob("*.incomplete"))
    if not any(folder.iterdir()):
        what = f"{folder} is empty: give the folder of a Qwen3.5 checkpoint"
    elif unfinished:
        what = (
            f"{folder} is half-downloaded: {unfinished} .incomplete files and no {lacking}; "
            "download the checkpoint again"
        )
    elif adapter.is_file():
        what = f"{folder} is a LoRA adapter{_base_of(adapter)}: {MERGE_FIRST}"
    elif any(folder.glob("*.gguf")):
        what = f"{folder} holds GGUF weights; {NOT_GGUF}"
    elif any(folder.glob("*.bin")):
        what = f"{folder} holds .bin weights; save the model as safetensors first"
    else:
        what = f"{folder} holds no {lacking}: give the folder of a Qwen3.5 checkpoint"
    return CheckpointError(what)


def _base_of(adapter: Path) -> str:
    """The name of the model that an adapter changes, to be said after it; empty where unknown."""
    try:
        base = read_json(adapter)["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f" of {base[:_SHOWN]!r}" if isinstance(base, str) and base else ""
