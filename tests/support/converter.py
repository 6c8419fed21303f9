"""The fake converter as a program on PATH."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.imports import ROOT


def install_converter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put `converter_lite` into `folder` and that folder in front of PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "converter_lite"
    path = f"PYTHONPATH={ROOT}:{ROOT / 'export'}"
    program = f"{sys.executable} -m tests.doubles.fake_converter"
    tool.write_text(
        f'#!/bin/sh\n{path} exec {program} "$@"\n',
        encoding="utf-8",
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tool
