"""The screen's protection from the library of an NPU."""

from __future__ import annotations

from importlib.util import find_spec

from q35chat.ascend.options import DEFAULT_NPU, NpuOptions, log_path

__all__ = ["DEFAULT_NPU", "NpuOptions", "log_path", "protect_screen"]


def protect_screen() -> None:
    """Send descriptor 2 to the log, where MindSpore Lite is installed and would write to it.

    To be called before anything takes `sys.stderr`, which moves to a descriptor of its own.
    """
    if find_spec("mindspore_lite") is not None:
        from q35chat.ascend.native_log import native_log  # noqa: PLC0415

        native_log(log_path())
