"""Writes a bundle into an empty folder: graphs with their weights, processor files, manifest.

Must not know where the folder goes afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat import __version__
from q35chat.bundle.bundle import MANIFEST_NAME, Bundle, FileEntry, Manifest, ModelFacts, Source
from q35chat.text import timestamp
from q35export.ascend.census import census
from q35export.components import (
    WEIGHTS_FILE,
    Builder,
    Builders,
    component_options,
    graph_path,
)
from q35export.config import ModelConfig
from q35export.matrix import TensorSource
from q35export.plan import kept_files
from q35export.processor import copy_processor
from q35export.progress import Reporter
from q35export.request import ExportPlan, ExportRequest
from q35export.weights import FileSink, link


@dataclass(frozen=True, slots=True)
class Ingredients:
    """Everything a bundle is made of; `kept` is what a calibration measured of the decoder, `begun`
    the file of weights that it left, `drafts` are the tokens that its draft head chooses among, if
    not all."""

    request: ExportRequest
    source: Source
    config: ModelConfig
    weights: TensorSource
    builders: Builders
    processor: Mapping[str, bytes]
    kept: Mapping[str, str] = field(default_factory=dict)
    begun: Path | None = None
    drafts: npt.NDArray[np.int64] | None = None


def write_bundle(
    folder: Path,
    made_of: Ingredients,
    keep: Bundle | None,
    plan: ExportPlan,
    reporter: Reporter,
) -> None:
    """Fill the empty `folder`, the manifest last.

    `keep` is the bundle whose other component is taken over.

    Raises CheckpointError for weights that are damaged; OSError when writing fails.
    """
    files = _keep_files(folder, keep, made_of.request)
    files |= copy_processor(made_of.processor, folder)
    graphs: dict[str, str] = {}
    for component in made_of.request.components:
        total = sum(file.size for file in plan.files if file.path.startswith(f"{component}/"))
        reporter.begin(component, total)
        written, names = _write_component(folder, component, made_of, reporter)
        files |= written
        graphs |= {name: graph_path(component, name) for name in names}
        reporter.end(component)
    manifest = _manifest(made_of, keep, graphs, files)
    (folder / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")


def _write_component(
    bundle: Path, component: str, made_of: Ingredients, reporter: Reporter
) -> tuple[dict[str, FileEntry], tuple[str, ...]]:
    """The files written, and the names of the graphs among them."""
    folder = bundle / component
    folder.mkdir()
    build: Builder = made_of.builders[component]
    begun = None if component == "vision" else made_of.begun
    with FileSink(
        folder / WEIGHTS_FILE, lambda count: reporter.advance(component, count), begun
    ) as sink:
        built = build(made_of.request, made_of.config, made_of.weights, sink)
    files = {f"{component}/{WEIGHTS_FILE}": FileEntry(sink.size, sink.sha256)}
    for name, model in built.items():
        path = graph_path(component, name)
        ir.save(model, bundle / path)
        files[path] = file_entry(bundle / path)
        if made_of.request.runs_on == "ascend-310p":
            for line in census(model).lines(component):
                reporter.note(line)
    return files, tuple(built)


def _keep_files(folder: Path, keep: Bundle | None, request: ExportRequest) -> dict[str, FileEntry]:
    """Link the kept files into `folder`, or copy them where the file system has no hard links."""
    if keep is None:
        return {}
    kept = kept_files(keep, request)
    for name in kept:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        link(keep.path / name, place)
    return kept


def _manifest(
    made_of: Ingredients,
    keep: Bundle | None,
    graphs: dict[str, str],
    files: dict[str, FileEntry],
) -> Manifest:
    request = made_of.request
    options = dict(keep.manifest.options) if keep else {}
    options |= {name: component_options(request, name) for name in request.components}
    for name in request.components if made_of.kept else ():
        if name != "vision":
            options[name] = {**options[name], **made_of.kept}
    if keep is not None:
        kept = {name: path for name, path in keep.manifest.graphs.items() if path in files}
        graphs = kept | graphs
    names = (*(name for name in ("text", "decode", "prefill") if name in options), *options)
    shown = options[names[0]]
    return Manifest(
        exporter=__version__,
        created=timestamp(),
        source=made_of.source,
        target=made_of.request.runs_on,
        precision=str(shown["precision"]),
        capacity=int(shown.get("max_seq_len", 0)),
        options=options,
        model=_facts(made_of.config),
        graphs=graphs,
        files=files,
    )


def _facts(config: ModelConfig) -> ModelFacts:
    text, vision = config.text, config.vision
    return ModelFacts(
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        image_token_id=config.image_token_id if vision else None,
        vision_start_token_id=config.vision_start_token_id,
        vision_end_token_id=config.vision_end_token_id,
        patch_size=vision.patch_size if vision else 0,
        temporal_patch_size=vision.temporal_patch_size if vision else 0,
        spatial_merge_size=vision.merge_size if vision else 0,
        position_grid_side=vision.grid_side if vision else 0,
        layer_types=text.layer_types,
        num_hidden_layers=len(text.layer_types),
        experts=text.experts.count if text.experts else 0,
    )


def file_entry(path: Path) -> FileEntry:
    """Size and digest of a file, which is read whole."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(path.stat().st_size, digest.hexdigest())
