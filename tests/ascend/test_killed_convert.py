"""A conversion that is told to stop, while its converter is at work."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.errors import ExportError
from q35export.ascend.converter import find_converter
from q35export.ascend.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.export.bundles import names
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter
from tests.support.imports import ROOT

# Says that it is at work, and so does what it started, if it lives that long.
TOOL = """#!/bin/sh
exec 3>"{pipe}"
echo at work >&3
(sleep 60; echo survived >&3) &
wait
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = make_checkpoint(folder / "checkpoint", seed=5)
    export(request(checkpoint, folder / "out"), Recorder())
    return folder


def request(checkpoint: Path, out: Path, *, force: bool = False) -> ExportRequest:
    return ExportRequest(
        str(checkpoint), out, target="ascend-310p", max_seq_len=32, component="decode", force=force
    )


@pytest.fixture
def out(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported / "out", tmp_path / "out"))


@contextmanager
def at_work(out: Path) -> Iterator[tuple[subprocess.Popen[bytes], io.TextIOBase]]:
    """`q35chat convert` with its converter at work; and a pipe that ends with the converter and
    everything that it started."""
    pipe, tool = out.parent / "pipe", out.parent / "tool"
    os.mkfifo(pipe)
    tool.write_text(TOOL.format(pipe=pipe), encoding="utf-8")
    tool.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "q35chat", "convert", str(out), "--converter", str(tool)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with pipe.open(encoding="utf-8") as lines:
            assert lines.readline() == "at work\n"
            yield process, lines
    finally:
        process.terminate()
        process.wait()
        pipe.unlink()
        tool.unlink()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_converter_and_all_that_it_started_stop_with_it(
    number: signal.Signals, code: int, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(out.parent)
    with at_work(out) as (process, lines):
        process.send_signal(number)
        assert lines.read() == ""
        assert process.wait() == code
    assert names(out.parent) == before
    assert not (out / "decode" / ".converting").exists()
    assert Bundle.open(out).manifest.graphs == {"decode": "decode/model.onnx"}

    install_converter(out.parent / "bin", monkeypatch)
    assert convert(out, find_converter(), PlainReporter(io.StringIO())).converted == ("decode",)


def test_while_one_converts_nobody_else_converts_or_exports_there(
    out: Path, exported: Path
) -> None:
    with at_work(out) as (process, _):
        said = rf"a conversion \(process {process.pid}\) is writing {out}; wait for it or stop it"
        with pytest.raises(ExportError, match=said):
            convert(out, None, PlainReporter(io.StringIO()))
        with pytest.raises(ExportError, match=said):
            export(request(exported / "checkpoint", out, force=True), Recorder())
    assert Bundle.open(out, check="full")
