"""A small bundle of made-up files, for tests that need no graph; and the request of an export."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from q35chat.bundle.bundle import MANIFEST_NAME, FileEntry, Manifest, ModelFacts, Source
from q35export.request import ExportRequest

FACTS = ModelFacts(
    vocab_size=384,
    hidden_size=128,
    image_token_id=373,
    vision_start_token_id=371,
    vision_end_token_id=372,
    patch_size=16,
    temporal_patch_size=2,
    spatial_merge_size=2,
    position_grid_side=6,
    layer_types=("linear_attention", "full_attention"),
    num_hidden_layers=2,
)
CONTENTS = {
    "text/model.onnx": b"text graph",
    "text/model.bin": bytes(range(256)),
    "processor/tokenizer.json": b"{}",
}


def request_for(model: Path | str, out: Path, **options: Any) -> ExportRequest:
    """For the CPU, 32 slots, not calibrated, unless `options` say something else."""
    given: dict[str, Any] = {"target": "cpu", "max_seq_len": 32} | options
    given = {"calibrate": given["target"] != "cpu"} | given
    return ExportRequest(str(model), out, **given)


def sample_manifest() -> Manifest:
    return Manifest(
        exporter="0.1.0",
        created="2026-01-02T03:04:05+00:00",
        source=Source("Qwen/Qwen3.5-0.8B", "abc", "huggingface:Qwen/Qwen3.5-0.8B@abc"),
        target="cpu",
        precision="int4",
        capacity=64,
        options={"text": {"precision": "int4", "max_seq_len": 64}},
        model=FACTS,
        graphs={"text": "text/model.onnx"},
        files={
            name: FileEntry(len(data), hashlib.sha256(data).hexdigest())
            for name, data in CONTENTS.items()
        },
    )


def write_sample_bundle(folder: Path) -> Path:
    for name, data in CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / MANIFEST_NAME).write_text(sample_manifest().to_json(), encoding="utf-8")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
