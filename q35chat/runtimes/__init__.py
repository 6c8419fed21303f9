"""Runtimes behind `GraphSession`, one module each, and the choice between them.

Importing this package loads no native library.
"""

from __future__ import annotations

import os
from pathlib import Path

from q35chat.engine.session import GraphSession
from q35chat.errors import RuntimeFailure

# Read by ONNX Runtime when it is imported: without it, it reports its use to its maker.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def open_session(path: Path, target: str, threads: int | None = None) -> GraphSession:
    """Load the graph file `path` with the runtime of `target`.

    `threads` None means every CPU that this process may use. Raises RuntimeFailure.
    """
    if target == "cpu":
        from q35chat.runtimes.onnxruntime import OrtSession  # noqa: PLC0415  (heavy)

        return OrtSession(path, threads=threads)
    raise RuntimeFailure(f"no runtime for target {target!r}: this program runs cpu")
