"""`q35chat doctor`: what is there and what is missing, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from q35chat.ascend import diagnosis as ascend
from q35chat.bundle.bundle import is_bundle
from q35chat.bundle.demo import demo_bundle_path, demo_checkpoint, sample_pictures
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.model_choice import DEFAULT_OUT
from q35chat.diagnosis import bundle, machine
from q35chat.diagnosis.checks import Check, Group, run_probe
from q35chat.errors import BundleError
from q35chat.settings import load_settings
from q35chat.text import readable_size, safe_line
from q35chat.user_input import typed_path

_WIDTH = 600
_SHOWN_BYTES = 64 << 20
_NPU_GROUPS = ("NPU runtime", "CANN", "Driver", "NPU", "Custom operators", "Conversion")


def diagnose(path: Path | None, console: Console) -> list[Group]:
    """Everything, about the bundle at `path`; None is the demo. How its check goes is shown on a
    terminal."""
    places = ascend.Places.here()
    library = ascend.lite_library()
    groups = [
        run_probe("Python", machine.python),
        run_probe("Machine", machine.processor),
        run_probe("Terminal", machine.terminal),
        run_probe("CPU runtime", machine.onnxruntime),
        run_probe("NPU runtime", lambda: ascend.mindspore_lite(library)),
        run_probe("CANN", lambda: ascend.cann(places)),
        run_probe("Driver", lambda: ascend.driver(places)),
        run_probe("NPU", ascend.npu),
        run_probe("Custom operators", lambda: ascend.kernels(places)),
        run_probe("Conversion", lambda: ascend.converter(_converter_name())),
    ]
    progress = _Progress(StatusLine(console))
    try:
        pictures, demo = sample_pictures(), _made_demo() if path is None else None
        checks = partial(bundle.bundle, path, groups, progress.tell, pictures, demo)
        return [*groups, run_probe("Bundle", checks)]
    finally:
        progress.line.clear()


def _made_demo() -> Path | None:
    """Where the demo is, if it was used before."""
    try:
        folder = demo_bundle_path(demo_checkpoint())
    except (BundleError, OSError):
        return None
    return folder if is_bundle(folder) else None


class _Progress:
    """Says on a status line which file is read and how far."""

    def __init__(self, line: StatusLine) -> None:
        self.line = line
        self._name = ""
        self._done = 0

    def tell(self, name: str, count: int) -> None:
        """So many more bytes of the file `name` were read."""
        before = self._done // _SHOWN_BYTES if name == self._name else -1
        self._done = self._done + count if name == self._name else count
        self._name = name
        if self._done // _SHOWN_BYTES != before:
            self.line.show(f"checking {name}: {readable_size(self._done)}")


def run_doctor(
    option: Path | None, console: Console, *, as_json: bool, everything: bool = False
) -> int:
    """Print the diagnosis; the exit code: 1 where the chosen bundle cannot run.

    The table has one line for all that belongs to an NPU where there is nothing of it and the
    bundle runs without, unless `everything` is wanted. JSON always has everything.
    """
    path, trouble = _chosen(option)
    groups = [*trouble, *diagnose(path, console)]
    runs = can_run(groups)
    if as_json:
        text = _json(groups, path, runs=runs)
    else:
        text = _table(groups if everything else _without_npu(groups), runs=runs)
    console.out.write(text)
    console.out.flush()
    return 0 if runs else 1


def can_run(groups: Sequence[Group]) -> bool:
    """Whether the bundle lacks nothing."""
    checks = groups[-1].checks
    return all(check.status in ("ok", "info") for check in checks)


def _chosen(option: Path | None) -> tuple[Path | None, list[Group]]:
    """The bundle that the chat would use, and what is wrong with the settings."""
    if option is not None:
        return option, []
    try:
        named = load_settings().model_dir
    except Exception as error:  # noqa: BLE001  (a diagnosis goes on)
        return None, [Group("Settings", (Check("settings", "warning", str(error)),))]
    if named:
        return typed_path(named), []
    return (DEFAULT_OUT, []) if is_bundle(DEFAULT_OUT) else (None, [])


def _converter_name() -> str | None:
    from q35export.ascend.converter import find_converter  # noqa: PLC0415

    found = find_converter()
    return found.name if found else None


def _without_npu(groups: Sequence[Group]) -> list[Group]:
    """The groups with those of an NPU as one line, where nothing of an NPU is here or needed."""
    found = [check for group in groups if group.title in _NPU_GROUPS for check in group.checks]
    needed = {f"needs {check.name}" for check in found}.intersection(
        check.name for check in groups[-1].checks
    )
    if needed or any(check.status in ("ok", "warning") for check in found):
        return list(groups)
    none = Check(
        "NPU", "info", "none found, not needed by this bundle (--all lists what one needs)"
    )
    first = next(place for place, group in enumerate(groups) if group.title in _NPU_GROUPS)
    rest = [group for group in groups if group.title not in _NPU_GROUPS]
    return [*rest[:first], Group("Ascend NPU", (none,)), *rest[first:]]


def _table(groups: Sequence[Group], *, runs: bool) -> str:
    lines = []
    for group in groups:
        lines.append(group.title)
        for check in group.checks:
            lines.append(f"  {check.status:8} {check.name:16} {check.found}")
            if check.advice:
                lines.append(f"  {'':8} {'':16} -> {check.advice}")
    lines.append("")
    lines.append("the bundle can run here" if runs else "the bundle cannot run here")
    return "".join(safe_line(line, limit=_WIDTH) + "\n" for line in lines)


def _json(groups: Sequence[Group], path: Path | None, *, runs: bool) -> str:
    report = {
        "bundle": None if path is None else str(path),
        "can_run": runs,
        "groups": [asdict(group) for group in groups],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"
