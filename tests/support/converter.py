"""The fake converter as a program on PATH."""

from __future__ import annotations

import json
import socketserver
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

import pytest

from q35chat.ascend.diagnosis import KERNELS
from tests.doubles import fake_converter
from tests.support.imports import ROOT

LIST = "op_impl/ai_core/tbe/config/ascend310p/aic-ascend310p-ops-info.json"


class Request(socketserver.StreamRequestHandler):
    """One start of the program: its folder, its arguments, what it is to fake."""

    def handle(self) -> None:
        """Convert, and answer with exit code, output and errors."""
        folder, arguments, fakes = json.loads(self.rfile.read())
        told = fake_converter.run(Path(folder), arguments, fakes)
        self.wfile.write(json.dumps(told).encode())


@cache
def serving() -> str:
    """The socket at which this process converts."""
    path = f"{tempfile.mkdtemp(prefix='q35chat-')}/converter"
    server = socketserver.UnixStreamServer(path, Request)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return path


def vendor(folder: Path, *kernels: str) -> Path:
    """A vendor package that lists `kernels`."""
    file = folder / LIST
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({kernel: {} for kernel in kernels}), encoding="utf-8")
    return folder


def install_converter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put `converter_lite` into `folder` and that folder in front of PATH; the delta rules come in
    a vendor package."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(vendor(folder / "vendor", *KERNELS)))
    tool = folder / "converter_lite"
    program = f"'{sys.executable}' -IS '{ROOT}/tests/doubles/converter_lite.py' '{serving()}'"
    tool.write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tool
