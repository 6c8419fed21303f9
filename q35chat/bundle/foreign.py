"""Converted graphs that other scripts made: a folder without a manifest, as a bundle.

Reads names of files and the checkpoint's `config.json`. The graphs' own shapes decide everything
else, so nothing here is said about capacity, gears or the one size of picture that they take.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from q35chat.bundle.bundle import Bundle, Depth, FileEntry, Manifest, ModelFacts, Source, is_bundle
from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import MOST_COUNT, Fields, read_bytes, read_json

_KINDS = ("vision", "prefill", "decode")
_NEEDED_KINDS = ("prefill", "decode")
_PROCESSOR = ("processor", "tokenizer", ".")
_wrong: Final = partial(BundleError, remedy=Remedy.COPY_CONFIG)
_NEEDED = ("tokenizer.json", "config.json")
_PICTURES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True, slots=True)
class ForeignBundle(Bundle):
    """A bundle whose tokenizer and settings lie in `processor`."""

    processor: Path = Path()

    @property
    def processor_dir(self) -> Path:
        """The folder of the checkpoint's own small files."""
        return self.processor

    def adding(self, component: str) -> str:
        """What to do to have a component that is not there."""
        return f"put the converted {component} graph of other scripts beside the others"


def open_bundle(path: Path, check: Depth = "small") -> Bundle:
    """The bundle at `path`, or one made of the converted graphs that lie there: prefill and
    decode, and vision where there is one. Raises BundleError.
    """
    if is_bundle(path) or not path.is_dir():
        return Bundle.open(path, check=check)
    graphs = _graphs(path)
    if not graphs:
        return Bundle.open(path)  # says that this is no bundle
    if missing := [kind for kind in _NEEDED_KINDS if kind not in graphs]:
        raise BundleError(f"{path} has converted graphs but no {missing[0]} graph: add it")
    processor = _processor(path)
    return ForeignBundle(path, _manifest(path, graphs, processor), processor)


def _graphs(path: Path) -> dict[str, str]:
    """Converted graphs by kind, from their names or their folders'; paths relative to `path`."""
    found: dict[str, str] = {}
    for file in sorted([*path.glob("*.mindir"), *path.glob("*/*.mindir")]):
        kind = _kind(file.stem) or _kind(file.parent.relative_to(path).name)
        if kind is not None:
            found.setdefault(kind, file.relative_to(path).as_posix())
    return found


def _kind(name: str) -> str | None:
    return next((kind for kind in _KINDS if kind in name.lower()), None)


def _processor(path: Path) -> Path:
    """Where the checkpoint's small files are: a folder of that name, here, or its own folder."""
    others = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
    for name in (*_PROCESSOR, *others):
        folder = path / name
        there = {file for file in (*_NEEDED, *_PICTURES) if (folder / file).is_file()}
        if there.issuperset(_NEEDED) and there.intersection(_PICTURES):
            return folder
    raise BundleError(
        f"{path} has graphs but no tokenizer: copy the checkpoint's .json and .jinja files "
        f"into {path / 'processor'}"
    )


def _manifest(path: Path, graphs: Mapping[str, str], processor: Path) -> Manifest:
    try:
        tokenizer = read_bytes(processor / "tokenizer.json")
    except ValueError as error:
        raise BundleError(f"{processor / 'tokenizer.json'} cannot be read: {error}") from error
    digest = hashlib.sha256(tokenizer).hexdigest()
    return Manifest(
        exporter="other",
        created="",
        source=Source(path.resolve().name, None, ""),
        target="ascend-310p",
        precision="fp16",
        capacity=0,
        options={},
        model=_facts(processor / "config.json"),
        graphs=dict(graphs),
        files={"processor/tokenizer.json": FileEntry(len(tokenizer), digest)},
    )


def _facts(file: Path) -> ModelFacts:
    try:
        config = Fields(read_json(file), str(file), _wrong)
    except ValueError as error:
        raise _wrong(f"{file} is no config.json of Qwen3.5: {error}") from error
    text, vision = config.section("text_config"), config.section("vision_config")
    return ModelFacts(
        vocab_size=text.count("vocab_size"),
        hidden_size=text.count("hidden_size"),
        image_token_id=config.whole("image_token_id", most=MOST_COUNT),
        vision_start_token_id=config.whole("vision_start_token_id", most=MOST_COUNT),
        vision_end_token_id=config.whole("vision_end_token_id", most=MOST_COUNT),
        patch_size=vision.count("patch_size"),
        temporal_patch_size=vision.count("temporal_patch_size"),
        spatial_merge_size=vision.count("spatial_merge_size"),
        position_grid_side=math.isqrt(vision.count("num_position_embeddings")),
        layer_types=text.texts("layer_types") if text.has("layer_types") else (),
        num_hidden_layers=text.count("num_hidden_layers"),
    )
