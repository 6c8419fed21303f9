"""Bundles of small random models, for the tests of commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from q35export.ascend.converter import find_converter
from q35export.ascend.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter


def export_bundle(folder: Path, out: str = "out", **options: Any) -> Path:
    """The bundle `out` in `folder`, of the checkpoint that lies there or is made now."""
    checkpoint = folder / "checkpoint"
    if not checkpoint.exists():
        make_checkpoint(checkpoint, seed=5)
    request = ExportRequest(str(checkpoint), folder / out, **options)
    export(request, PlainReporter(sys.stderr))
    return request.out


def npu_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Path:
    """A bundle for the NPU, converted by the converter's stand-in."""
    bundle = export_bundle(folder, target="ascend-310p", **options)
    install_converter(folder / "bin", monkeypatch)
    convert(bundle, find_converter(), PlainReporter(sys.stderr))
    return bundle
