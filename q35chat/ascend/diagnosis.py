"""Probes of an NPU: MindSpore Lite, CANN, driver, chips and whether a bundle fits them, Custom
operators and the converter."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from q35chat.ascend.memory import GraphSize, largest_needed, needed
from q35chat.ascend.npu_smi import npus
from q35chat.diagnosis.checks import Check, Status
from q35chat.diagnosis.machine import Library, look

LEAST_LITE = (2, 9)
SELF_CONTAINED_LITE = (2, 11)
"""The first wheel that has the delta rules' kernels and sets their path by itself."""
KERNELS = ("ChunkGatedDeltaRule", "RecurrentGatedDeltaRule")
_ROOTS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_VERSION_FILES = ("version.cfg", "*/ascend_toolkit_install.info", "compiler/version.info")
_ADVICE = {
    ("mindspore_lite", "missing"): (
        "install the vendor's wheel of 2.9 or newer for your CANN; wheels are for CPython 3.11, "
        "some for 3.12: make this program's environment with that"
    ),
    ("mindspore_lite", "warning"): (
        "2.9 or newer is needed: it is the first that this model is published for"
    ),
    ("converter", "info"): (
        "only needed to convert here: put converter_lite on PATH, or set MSLITE_HOME"
    ),
    ("CANN", "missing"): "install CANN and source its set_env.sh",
    ("driver", "missing"): "install the NPU's driver and firmware",
    ("devices", "warning"): "join the group of the device files (HwHiAiUser)",
    ("devices", "missing"): "the driver sees no NPU",
    ("NPU", "missing"): "see whether npu-smi info works",
    ("chip memory", "warning"): "export with fewer lengths of prompts, or take a smaller model",
}
"""What to do about a check of that name that ended so."""
_GIB = 1 << 30
_LITE = (
    "import json; from q35chat.ascend import mindspore_lite as m; "
    "from importlib import import_module; lib = import_module('mindspore_lite'); "
    "print(json.dumps({'version': m.library_version(lib), "
    "'missing': m.missing_calls(lib), 'note': ''}))"
)


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are looked for; a test has its own."""

    environment: Mapping[str, str]
    toolkit: Path = Path("/usr/local/Ascend/ascend-toolkit/latest")
    driver: Path = Path("/usr/local/Ascend/driver/version.info")
    devices: Path = Path("/dev")

    @classmethod
    def here(cls) -> Places:
        """This machine."""
        return cls(dict(os.environ))


def lite_library() -> Library:
    """MindSpore Lite's package."""
    return look(_LITE)


def _check(name: str, status: Status, found: str) -> Check:
    return Check(name, status, found, _ADVICE.get((name, status), ""))


def mindspore_lite(found: Library) -> Iterator[Check]:
    """What the NPU needs."""
    if found.version is None:
        yield _check("mindspore_lite", "missing", found.note)
    elif not found.missing and (0,) < _release(found.version) < LEAST_LITE:
        yield _check("mindspore_lite", "warning", found.version)
    elif found.missing:
        lacks = f"{found.version}, which has no {', '.join(found.missing)}"
        yield _check("mindspore_lite", "warning", lacks)
    else:
        yield _check("mindspore_lite", "ok", found.version)


def converter(name: str | None) -> Iterator[Check]:
    """What `convert` would use."""
    yield _check("converter", "info" if name is None else "ok", name or "none")


def cann(places: Places) -> Iterator[Check]:
    """The toolkit, and whether its environment was set."""
    named = _set_up(places)
    root = Path(named) if named else places.toolkit
    if not root.is_dir():
        yield _check("CANN", "missing", f"{named} does not exist" if named else "not found")
    elif named is None:
        yield Check("CANN", "warning", f"{root}, not set up", f"source {root.parent}/set_env.sh")
    else:
        yield _check("CANN", "ok", f"{_version(root) or 'of unknown version'} ({root})")


def cann_version(places: Places) -> str | None:
    """The version of the toolkit whose environment was set; None without one, or where it does not
    tell."""
    named = _set_up(places)
    return _version(Path(named)) if named else None


def _set_up(places: Places) -> str | None:
    return next((places.environment[name] for name in _ROOTS if name in places.environment), None)


def driver(places: Places) -> Iterator[Check]:
    """The driver and its device files."""
    text = _read(places.driver)
    found = re.search(r"(?im)^\s*(?:package_)?version\s*=\s*(\S+)", text)
    yield _check("driver", "ok" if found else "missing", found[1] if found else "not found")
    files = [file for file in places.devices.glob("davinci*") if file.name[7:].isdecimal()]
    closed = [file.name for file in files if not os.access(file, os.R_OK | os.W_OK)]
    if closed:
        yield _check("devices", "warning", f"{', '.join(sorted(closed))} may not be opened")
    elif files:
        yield _check("devices", "ok", ", ".join(sorted(file.name for file in files)))
    else:
        yield _check("devices", "missing", "no /dev/davinci*")


def npu() -> Iterator[Check]:
    """Every chip with its health and memory."""
    chips = npus()
    if not chips:
        yield _check("NPU", "missing", "npu-smi lists none")
    for chip in chips:
        memory = f"{chip.free / _GIB:.1f} GiB free of {chip.total / _GIB:.1f}"
        healthy = chip.health == "OK"
        advice = "" if healthy else "see npu-smi info -t health"
        found = f"{chip.name}, {chip.health}, {memory}"
        yield Check(f"NPU {chip.device_id}", "ok" if healthy else "warning", found, advice)


def fit(sizes: Sequence[GraphSize]) -> Iterator[Check]:
    """Whether the graphs of a bundle fit each kind of chip that is here, together or alone."""
    told = "; ".join(each.text() for each in sizes)
    for total in sorted({chip.total for chip in npus()}):
        chip = f"a chip has {total / _GIB:.1f} GiB"
        if needed(sizes) <= total:
            yield _check("chip memory", "ok", f"{told}; {chip}: all fit at once")
        elif largest_needed(sizes) <= total:
            yield _check("chip memory", "info", f"{told}; {chip}: one graph at a time fits")
        elif all(each.converted for each in sizes):
            yield _check("chip memory", "warning", f"{told}; {chip}: too little for one of them")
        else:
            yield _check(
                "chip memory", "info", f"{told}; {chip}: may be too little for one of them"
            )


def kernels(places: Places, lite: Library) -> Iterator[Check]:
    """The vendor package: both delta rules, from one checkout. The library `lite` may bring them
    for itself, not for its converter."""
    value = places.environment.get("ASCEND_CUSTOM_OPP_PATH", "")
    root = Path(_set_up(places) or places.toolkit)
    opp = Path(places.environment.get("ASCEND_OPP_PATH", root / "opp"))
    script = opp / "vendors" / "mslite_custom_ops" / "bin" / "set_env.bash"
    found = script if script.is_file() else None
    yield Check("operators", *_kernels(value, _release(lite.version or ""), found))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _kernels(value: str, lite: tuple[int, ...], installed: Path | None) -> tuple[Status, str, str]:
    """How the packages are that `value` names, what was found, and what to do; `installed` is the
    script of a package that was put beside CANN's own."""
    folders = [Path(part) for part in value.split(":") if part]
    if not folders:
        return _unnamed(lite, installed)
    if gone := [str(folder) for folder in folders if not folder.is_dir()]:
        return "missing", f"{', '.join(gone)} does not exist", "correct ASCEND_CUSTOM_OPP_PATH"
    where = {kernel: _packages_with(folders, kernel) for kernel in KERNELS}
    if absent := [kernel for kernel, packages in where.items() if not packages]:
        found = f"{value} has no {' and no '.join(absent)}"
        advice = "build and install both from one checkout of 2026, or use the wheel of 2.11"
        if older := [name for name in absent if _packages_with(folders, f"{name}310P")]:
            found += f", but {' and '.join(f'{name}310P' for name in older)} of an older revision"
        return "missing", found, advice
    together = set(where[KERNELS[0]]) & set(where[KERNELS[1]])
    if not together:
        found = f"from different packages: {', '.join(str(each[0]) for each in where.values())}"
        advice = "their signatures changed over time: install both from one checkout"
        return "warning", found, advice
    return "ok", f"{' and '.join(KERNELS)} in {min(together)}", ""


def _unnamed(lite: tuple[int, ...], installed: Path | None) -> tuple[Status, str, str]:
    """What it means that no package is named."""
    found = "ASCEND_CUSTOM_OPP_PATH is not set"
    if installed is not None:
        there = f"{found}, but {installed.parent.parent} is there"
        return "missing", there, f"source {installed} before q35chat starts"
    if lite >= SELF_CONTAINED_LITE:
        advice = "for convert set it to the folder mslite_custom_ops of that wheel"
        return "info", f"{found}: a chat finds those of MindSpore Lite's wheel", advice
    return "missing", found, "set it to the vendor package of the delta rules before q35chat starts"


def _packages_with(folders: list[Path], kernel: str) -> list[Path]:
    """The given folders whose lists of operators name `kernel`."""
    found = []
    for folder in folders:
        for file in folder.rglob("aic-*-ops-info.json"):
            try:
                if kernel in json.loads(_read(file)):
                    found.append(folder)
                    break
            except ValueError:
                continue
    return found


def _version(root: Path) -> str | None:
    """The release that a file of the toolkit tells: `version=8.5.0`, or `[7.7.0.5:8.5.0]`, where it
    follows the number of a build."""
    for pattern in _VERSION_FILES:
        for file in sorted(root.glob(pattern)):
            text = _read(file)
            found = re.search(r"\[[\w.]+:(\d[\w.]*)\]", text) or re.search(
                r"(?i)version\s*=\s*\[?(\d[\w.]*)", text
            )
            if found:
                return found[1]
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
