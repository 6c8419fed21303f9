"""From the MODEL argument to a checkpoint folder on this machine: a path, or a hub id to fetch.

Must not know what is in the files; a fingerprint tells, without reading the weights, whether a
folder is the one a bundle was made from.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from q35chat.bundle.manifest import Source
from q35chat.errors import CheckpointError, Option, Remedy, UsageError
from q35chat.user_input import typed_path
from q35export.request import ExportRequest
from q35export.safetensors_files import NOT_GGUF, read_gone

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SMALL_FILES = ["*.json", "*.jinja", "merges.txt"]
_WEIGHTS = ["*.safetensors"]
_IN_SUBFOLDERS = ["*/*"]

_SUFFIXES = (".safetensors", ".json", ".jinja", ".txt")
_HEADER_LIMIT = 1 << 24

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """A checkpoint folder and what the manifest says of it.

    `complete` is False where only the small files were fetched.
    """

    folder: Path
    source: Source
    complete: bool = True


def is_same_hub_source(request: ExportRequest, source: Source) -> bool:
    """Whether `source` is the hub id and revision of `request`, as far as can be told offline.

    Exporting once means once: neither network nor checkpoint is needed to see it.
    """
    commit = source.fingerprint.rpartition("@")[2]
    wanted = request.revision or commit
    return (
        local_folder(request.model) is None
        and source.name == request.model
        and source.revision == wanted
        and source.fingerprint.startswith(f"{request.source}:")
    )


def resolve(request: ExportRequest, note: Note, *, weights: bool = True) -> LocalCheckpoint:
    """Find or fetch the checkpoint; without `weights` a hub id is fetched without its weights.

    Raises CheckpointError for a folder or repository that does not exist or cannot be fetched,
    UsageError when the package for its hub is not installed.
    """
    folder = local_folder(request.model)
    if folder is not None:
        return _local(folder)
    if not _HUB_ID.fullmatch(request.model):
        raise CheckpointError(
            f"there is no folder {request.model!r}; give a folder or a hub id such as "
            "Qwen/Qwen3.5-4B"
        )
    patterns = _SMALL_FILES + (_WEIGHTS if weights else [])
    note(f"fetching {request.model} from {request.source} (or its cache)")
    fetch = _from_modelscope if request.source == "modelscope" else _from_huggingface
    local = fetch(request.model, request.revision, patterns)
    if "gguf" in request.model.lower() and not (local.folder / "config.json").is_file():
        raise CheckpointError(f"{request.model} has GGUF weights; {NOT_GGUF}")
    return replace(local, complete=weights)


def local_folder(model: str) -> Path | None:
    """The folder that `model` names; None for a hub id."""
    path = typed_path(model)
    looks_like_path = model.startswith((".", "/", "~")) or os.path.exists(path)  # noqa: PTH110
    return path if model and looks_like_path else None


def _local(folder: Path) -> LocalCheckpoint:
    if not os.path.isdir(folder):  # noqa: PTH112  (False for any name that is none)
        found = "is not a folder" if os.path.exists(folder) else "does not exist"  # noqa: PTH110
        if folder.suffix == ".gguf" and os.path.isfile(folder):  # noqa: PTH113
            raise CheckpointError(f"{folder} is a GGUF file; {NOT_GGUF}")
        raise CheckpointError(f"{folder} {found}: give the folder of a Qwen3.5 checkpoint")
    try:
        before = read_gone(folder).fingerprint
        fingerprint = before or f"folder:{folder_fingerprint(folder)}"
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from error
    return LocalCheckpoint(folder, Source(_name(folder), None, fingerprint))


def _name(folder: Path) -> str:
    """The folder's name, as text also where it is none."""
    return os.fsencode(folder.resolve().name).decode("utf-8", "replace")


def _from_huggingface(model: str, revision: str | None, patterns: list[str]) -> LocalCheckpoint:
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    if not sys.stderr.isatty():
        disable_progress_bars()
    folder = _fetched(snapshot_download, model, revision, patterns)
    commit = folder.name
    source = Source(model, revision or commit, f"huggingface:{model}@{commit}")
    return LocalCheckpoint(folder, source)


def _from_modelscope(model: str, revision: str | None, patterns: list[str]) -> LocalCheckpoint:
    try:
        from modelscope import snapshot_download  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"{Option.MODELSCOPE} needs the package modelscope: run `pip install modelscope`"
        ) from error
    folder = _fetched(snapshot_download, model, revision, patterns)
    # ModelScope does not say which commit it gave: the files themselves tell.
    digest = folder_fingerprint(folder)
    source = Source(model, revision or digest, f"modelscope:{model}@{digest}")
    return LocalCheckpoint(folder, source)


def _fetched(
    download: Callable[..., str], model: str, revision: str | None, patterns: list[str]
) -> Path:
    try:
        return Path(
            download(
                model, revision=revision, allow_patterns=patterns, ignore_patterns=_IN_SUBFOLDERS
            )
        )
    except Exception as error:
        raise _not_fetched(model, revision, error) from error


def _not_fetched(model: str, revision: str | None, error: Exception) -> CheckpointError:
    kind, remedy = type(error).__name__, None
    if kind == "GatedRepoError":
        what = f"{model} is gated: accept its terms on the hub and log in with `hf auth login`"
    elif kind == "RepositoryNotFoundError":
        what = f"the hub has no model {model}, or it is private: check the id, or `hf auth login`"
    elif kind == "RevisionNotFoundError":
        what, remedy = f"{model} has no revision {revision!r}:", Remedy.ANOTHER_REVISION
    elif isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        what = f"the disk is full while fetching {model}: free some space, or set HF_HOME elsewhere"
    elif os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "ON", "YES", "TRUE"}:
        what = f"{model} is not in the cache and HF_HUB_OFFLINE is set: unset it, or give a folder"
    else:
        reason = str(error).strip().splitlines()
        found = reason[0][:120] if reason else "no reason given"
        what, remedy = f"cannot fetch {model} ({kind}: {found})", Remedy.ANOTHER_NETWORK
    return CheckpointError(what, remedy)


def folder_fingerprint(folder: Path) -> str:
    """Hexadecimal digest over the checkpoint files at the top of `folder`.

    Small files count by content; weight files by name, size, time of change and header, so that
    weights rewritten in place are seen. The folder's own name and place do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and path.is_file():
            facts: list[object] = [path.name, path.stat().st_size]
            if path.suffix == ".safetensors":
                facts += [path.stat().st_mtime_ns, _digest_of_header(path)]
            else:
                with path.open("rb") as file:
                    facts.append(hashlib.file_digest(file, "sha256").hexdigest())
            digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def _digest_of_header(path: Path) -> str:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return hashlib.sha256(file.read(min(length, _HEADER_LIMIT))).hexdigest()
