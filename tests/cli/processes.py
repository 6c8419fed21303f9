"""Children of tests that end for certain: when the test does, and after a time in any case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.support.imports import ROOT

PATIENCE_S = 120.0
"""For what hangs, not a measure of speed."""

PATHS = os.pathsep.join([str(ROOT), str(ROOT / "export")])
SCRIPTED = (sys.executable, "-m", "tests.cli.scripted_main")


@contextmanager
def running(
    line: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of `line` with pipes; it is killed at the end of the block, and after
    `PATIENCE_S`, so that nothing that is read from it waits for ever."""
    heard = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a child would ignore it
    try:
        process = subprocess.Popen(
            line,
            env=os.environ | {"PYTHONPATH": PATHS} | dict(environment or {}),
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGHUP, heard)
    limit = threading.Timer(PATIENCE_S, process.kill)
    limit.daemon = True
    limit.start()
    with process:
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()
