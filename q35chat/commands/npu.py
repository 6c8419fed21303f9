"""What the command line says about an NPU, and the screen's protection from its library.

Imports nothing heavy: every command that loads a model comes through here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from platformdirs import user_log_path

Residency = Literal["auto", "both", "swap"]


@dataclass(frozen=True, slots=True)
class NpuOptions:
    """`residency` says which graphs are on the device at once; `host_state_roundtrip` moves every
    state to the host and back at every step, for comparison."""

    device_id: int = 0
    residency: Residency = "auto"
    host_state_roundtrip: bool = False


DEFAULT_NPU = NpuOptions()


def log_path() -> Path:
    """Where messages of MindSpore Lite go; each process puts its own number into the name."""
    return user_log_path("q35chat") / "mindspore-lite.log"


def protect_screen() -> None:
    """Send descriptor 2 to the log, where MindSpore Lite is installed and would write to it.

    To be called before anything takes `sys.stderr`, which moves to a descriptor of its own.
    """
    if find_spec("mindspore_lite") is not None:
        from q35chat.ascend.native_log import native_log  # noqa: PLC0415

        native_log(log_path())
