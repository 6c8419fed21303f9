"""The tokenizer and processor files of a checkpoint, which a bundle carries unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path

from q35chat.bundle.bundle import PROCESSOR_FOLDER, FileEntry
from q35chat.errors import CheckpointError
from q35chat.json_reader import Fields, read_json

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_PICTURES = ("preprocessor_config.json", "processor_config.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_OTHERS = (
    "config.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
)


def processor_files(folder: Path) -> tuple[Path, ...]:
    """The files to copy from the checkpoint `folder`.

    Raises CheckpointError when the tokenizer, the chat template or the picture processor is
    missing.
    """
    for name in _TOKENIZER:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} lacks {name}; download the checkpoint again")
    path = folder / "tokenizer_config.json"
    try:
        tokenizer = Fields(read_json(path), str(path), CheckpointError, "download it again")
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from error
    needed: tuple[tuple[str, ...], ...] = (
        _PICTURES,
        () if tokenizer.raw("chat_template") else _TEMPLATES,
    )
    for names in needed:
        if names and not any((folder / name).is_file() for name in names):
            raise CheckpointError(
                f"{folder} has neither {' nor '.join(names)}; download the checkpoint again"
            )
    carried = (*_TOKENIZER, *_PICTURES, *_TEMPLATES, *_OTHERS)
    return tuple(folder / name for name in carried if (folder / name).is_file())


def bundled_name(file: Path) -> str:
    """The path of a processor file inside a bundle."""
    return f"{PROCESSOR_FOLDER}/{file.name}"


def copy_processor(files: tuple[Path, ...], bundle: Path) -> dict[str, FileEntry]:
    """Copy `files` into the folder `bundle`; what the manifest says of them, by path."""
    (bundle / PROCESSOR_FOLDER).mkdir()
    entries = {}
    for file in files:
        data = file.read_bytes()
        (bundle / bundled_name(file)).write_bytes(data)
        entries[bundled_name(file)] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    return entries
