"""The options of an NPU, and where its library's messages go.

Imports nothing heavy: every command that loads a model comes through here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_log_path

from q35chat.ascend.residency import Mode


@dataclass(frozen=True, slots=True)
class NpuOptions:
    """`residency` says which graphs are on the device at once, "one" that prefill also decodes;
    `host_state_roundtrip` moves every state to the host and back at every step, for comparison."""

    device_id: int = 0
    residency: Mode = "auto"
    host_state_roundtrip: bool = False


DEFAULT_NPU = NpuOptions()


def log_path() -> Path:
    """Where messages of MindSpore Lite go; each process puts its own number into the name."""
    return user_log_path("q35chat") / "mindspore-lite.log"
