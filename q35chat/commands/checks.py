"""Options that contradict each other, refused before anything is read or loaded.

Knows option names; imports nothing heavy.
"""

from __future__ import annotations

from q35chat.commands.npu import NpuOptions
from q35chat.errors import UsageError


def check_thinking(thinking: bool | None, budget: int | None) -> None:
    """Refuse a budget for reasoning that is switched off. Raises UsageError."""
    if thinking is False and budget is not None:
        raise UsageError("--no-thinking leaves no reasoning to limit; drop it or --thinking-budget")


def check_session(session: str | None, *, latest: bool) -> None:
    """Refuse to open two chats at once. Raises UsageError."""
    if session is not None and latest:
        raise UsageError("--continue is the latest chat, --session another; give one")


def check_pictures(pictures: str | None, *, none: bool) -> None:
    """Refuse a way to show pictures that are not to be shown. Raises UsageError."""
    if none and pictures not in {None, "none"}:
        raise UsageError(f"--no-images shows no pictures; drop --pictures {pictures} or it")


def check_device(target: str, npu: NpuOptions, threads: int | None) -> None:
    """Refuse options that no runtime of a bundle for `target` reads. Raises UsageError."""
    on_cpu = target == "cpu"
    for option, given in (
        ("--device-id", on_cpu and npu.device_id != 0),
        ("--residency", on_cpu and npu.residency != "auto"),
        ("--host-state-roundtrip", on_cpu and npu.host_state_roundtrip),
        ("--threads", not on_cpu and threads is not None),
    ):
        if given:
            other = "an NPU" if on_cpu else "the CPU"
            raise UsageError(
                f"{option} is for bundles for {other}, and this one is for {target}; "
                "leave it out, or choose another with --model-dir"
            )
