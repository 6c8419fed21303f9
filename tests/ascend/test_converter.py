from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.errors import ExportError
from q35export.ascend.converter import Converter, Job, run_converter


def test_a_converter_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    job = Job("decode", *(tmp_path / name for name in ("model.onnx", "config", "out", "log")))

    with pytest.raises(ExportError, match="the tool does not start: No such file or directory"):
        run_converter(Converter((str(tmp_path / "gone"),), "the tool"), job, lambda: None)
