"""Which safetensors files make up a checkpoint folder, and whether all of them are there."""

from __future__ import annotations

import re
from pathlib import Path

from q35chat.errors import CheckpointError
from q35chat.json_files import read_json

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NUMBERED = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.safetensors")


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of the checkpoint, in name order.

    A single `model.safetensors` wins over an index, an index over a plain listing. Raises
    CheckpointError for a folder that is missing, has no weights, or lacks some of them.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder: give the folder of a Qwen3.5 checkpoint")
    if (folder / _SINGLE).is_file():
        return (folder / _SINGLE,)
    names = _indexed(folder) if (folder / _INDEX).is_file() else _listed(folder)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} is half-downloaded: {len(missing)} of {len(names)} weight files are missing "
            f"({missing[0]}{', …' if len(missing) > 1 else ''}); download the checkpoint again"
        )
    return tuple(folder / name for name in names)


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
        raise CheckpointError(_why_no_weights(folder))
    numbered = _NUMBERED.fullmatch(names[0])
    if numbered is None:
        return names
    count = int(numbered["count"])
    return [f"{numbered['stem']}-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def _why_no_weights(folder: Path) -> str:
    if not any(folder.iterdir()):
        return f"{folder} is empty: give the folder of a Qwen3.5 checkpoint"
    unfinished = sum(1 for _ in folder.rglob("*.incomplete"))
    if unfinished:
        return (
            f"{folder} is half-downloaded: {unfinished} .incomplete files and no safetensors; "
            "download the checkpoint again"
        )
    if any(folder.glob("*.gguf")):
        return f"{folder} holds GGUF weights; export reads safetensors in bf16, fp16 or fp32"
    if any(folder.glob("*.bin")):
        return f"{folder} holds .bin weights; save the model as safetensors first"
    return f"{folder} holds no safetensors files: give the folder of a Qwen3.5 checkpoint"
