"""The tokenizer and processor files of a checkpoint, which a bundle carries unchanged.

They are tried before anything is written, by the readers that the chat has: an export makes nothing
that no chat can open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from q35chat.bundle.bundle import PROCESSOR_FOLDER, FileEntry
from q35chat.chat.checkpoint import ChatFiles
from q35chat.errors import BundleError, CheckpointError, Remedy
from q35chat.text import readable_size
from q35chat.vision.rules import PictureRules, picture_sections
from q35export.config import ModelConfig

_TOKENIZER = "tokenizer.json"
_VOCABULARY = ("vocab.json", "merges.txt")
_CARRIED = (
    _TOKENIZER,
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    *_VOCABULARY,
    "added_tokens.json",
    "special_tokens_map.json",
)
_MOST_BYTES = 256 << 20
_POINTER = b"version https://git-lfs"

Note = Callable[[str], None]


def processor_files(folder: Path, config: ModelConfig, note: Note) -> dict[str, bytes]:
    """The files to carry from the checkpoint `folder`, by name.

    `note` hears which file is believed where two contradict each other. Raises CheckpointError
    where the chat could not read them, or not talk with them.
    """
    files = {name: _read(folder / name) for name in _CARRIED if (folder / name).is_file()}
    if _TOKENIZER not in files:
        files[_TOKENIZER] = _built_tokenizer(folder)
    with written(files) as copy:
        try:
            _try(copy, config, note)
        except BundleError as error:
            what = error.what.replace(str(copy), str(folder))
            raise CheckpointError(what, Remedy.CORRECT_FILE) from error
    return files


@contextmanager
def written(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with these files alone, as a bundle will have them; gone afterwards."""
    with TemporaryDirectory(prefix="q35chat-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        yield Path(folder)


def _read(path: Path) -> bytes:
    """The file, where it is the checkpoint's own and not too large for what it should be. In the
    cache of a hub a link leads to the folder `blobs` beside the snapshots."""
    place, folder = path.resolve(), path.parent.resolve()
    homes = [folder]
    if folder.parent.name == "snapshots":
        homes.append(folder.parent.parent / "blobs")
    if not any(place.is_relative_to(home) for home in homes):
        raise CheckpointError(
            f"{path} is a link to {place}, outside of the checkpoint; put the file itself there"
        )
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise CheckpointError(
            f"{path} has {readable_size(size)}, more than the {readable_size(_MOST_BYTES)} that "
            "such a file can have; download the checkpoint again"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(_POINTER):
        raise CheckpointError(
            f"{path} is a Git LFS pointer of {len(data):,} bytes, not the file; run `git lfs pull`"
        )
    return data


def _built_tokenizer(folder: Path) -> bytes:
    """The `tokenizer.json` that transformers makes of a vocabulary and its merges."""
    for name in _VOCABULARY:
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{folder} has neither {_TOKENIZER} nor {' and '.join(_VOCABULARY)}: copy them "
                "from the original checkpoint"
            )
    from transformers.models.qwen3_5.tokenization_qwen3_5 import (  # noqa: PLC0415  (heavy)
        Qwen3_5Tokenizer,
    )

    vocabulary, merges = (str(folder / name) for name in _VOCABULARY)
    try:  # AutoTokenizer does not look for these files and makes an empty one
        tokenizer = Qwen3_5Tokenizer.from_pretrained(
            folder, vocab_file=vocabulary, merges_file=merges, local_files_only=True
        )
    except Exception as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"{folder / _VOCABULARY[0]} makes no tokenizer: {why}") from error
    text: str = tokenizer.backend_tokenizer.to_str()
    return text.encode()


def _try(folder: Path, config: ModelConfig, note: Note) -> None:
    """Read the files and render a conversation. Raises BundleError."""
    files = ChatFiles.read(folder, pictures=config.vision is not None)
    used, *others = files.tokenizer.template_files
    for other in others:
        note(f"{used} and {other} differ: the template of {used} is used, as transformers does")
    if not files.stop_ids:
        raise BundleError(
            f"{folder / 'generation_config.json'} has no eos_token_id, and neither tokenizer nor "
            "chat template say what ends an answer"
        )
    rows = config.text.vocab_size
    token, spelling = files.tokenizer.last
    if token >= rows:
        raise BundleError(
            f"{folder / _TOKENIZER}: the token {spelling!r} has the id {token}, the embedding only "
            f"{rows} rows (vocab_size of config.json)"
        )
    pictures = files.rules is not None and _try_pictures(folder, files, config, note)
    for thinking in (False, True):
        files.conversation(picture=pictures, thinking=thinking)


def _try_pictures(folder: Path, files: ChatFiles, config: ModelConfig, note: Note) -> bool:
    """Whether pictures can be shown to the model, by its template. Raises BundleError."""
    vision = config.tower
    assert files.rules is not None
    files.rules.check(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.merge_size,
    )
    _, *others = picture_sections(folder)
    if others and _rules(*others[0]) != files.rules:
        note(
            "processor_config.json and preprocessor_config.json differ: the first is used, as "
            "transformers does"
        )
    takes = files.takes_pictures(config.image_token_id)
    if not takes:
        note("the chat template has no place for pictures: the chat will take none")
    return takes


def _rules(config: object, where: str) -> PictureRules | None:
    try:
        return PictureRules.from_config(config, where)
    except BundleError:
        return None


def bundled_name(name: str) -> str:
    """The path of a processor file inside a bundle."""
    return f"{PROCESSOR_FOLDER}/{name}"


def copy_processor(files: Mapping[str, bytes], bundle: Path) -> dict[str, FileEntry]:
    """Write `files` into the folder `bundle`; what the manifest says of them, by path."""
    (bundle / PROCESSOR_FOLDER).mkdir()
    entries = {}
    for name, data in files.items():
        (bundle / bundled_name(name)).write_bytes(data)
        entries[bundled_name(name)] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    return entries
