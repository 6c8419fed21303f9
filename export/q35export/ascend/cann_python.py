"""The Python that CANN compiles operators with: which one it takes, and whether it can.

The operator compiler asks the `python3` of PATH for its version, opens `libpython3.Y.so.1.0` (from
`python3-config --prefix`, else where the loader looks) and imports the modules of that Python
(`LaunchDynamicLib` in its `python_adapter/py_decouple`). A process that is a Python already uses
itself. What must be there is on hiascend.com, "Runtime Dependencies" of CANN 8.5.0, 9.0.0, 9.1.0.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from q35chat.errors import ExportError, Option, UsageError
from q35chat.text import quoted
from q35chat.user_input import typed_path

LITE = "mindspore_lite"
_TIMEOUT_S = 30
_ALWAYS = ("attrs", "cffi>=1.12.3", "decorator>=4.4.0", "psutil", "scipy", "sympy>=1.5.1")
_BEFORE_9_0 = (
    "numpy>=1.19.2,<2; python_version < '3.13'",
    "numpy>2.1; python_version >= '3.13'",
    "protobuf==3.20.*",
)
_BEFORE_9_1 = ("numpy>=1.19.2", "protobuf==3.20.*")
_SINCE_9_1 = ("numpy>=1.19.2", "protobuf")
_PROBE = f"""
import ctypes, json, os, sys, sysconfig
from importlib import metadata, util
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
lib, arch = (sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "MULTIARCH"))
found = [d for d in (lib, os.path.join(lib, arch)) if os.path.isfile(os.path.join(d, name))][:1]
if not found:
    try:
        ctypes.CDLL(name)
        found = [""]
    except OSError:
        pass
versions = {{one.metadata["Name"]: one.version for one in metadata.distributions()}}
print(json.dumps([list(sys.version_info[:2]), found, versions, bool(util.find_spec("{LITE}"))]))
"""


@dataclass(frozen=True, slots=True)
class CannPython:
    """An interpreter: its version, the folder of its shared library ("" where the loader finds it,
    None where there is none), its packages by lower-case name, whether MindSpore Lite is one."""

    executable: Path
    version: tuple[int, int]
    library: str | None
    packages: Mapping[str, str]
    has_lite: bool

    @classmethod
    def probe(cls, executable: Path) -> CannPython:
        """Ask `executable` in a process of its own. Raises ExportError where it does not answer."""
        try:
            done = subprocess.run(
                [executable, "-c", _PROBE],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_TIMEOUT_S,
                check=True,
                cwd="/",
            )
            (major, minor), library, packages, has_lite = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ExportError(
                f"{executable} does not answer as a Python of 3.8 or newer does "
                f"({type(error).__name__}); name another with {Option.PYTHON}"
            ) from error
        names = {str(name).lower(): str(version) for name, version in packages.items()}
        return cls(executable, (major, minor), next(iter(library), None), names, bool(has_lite))

    def check(self, cann: str) -> None:
        """Refuse an interpreter that version `cann` cannot compile with. Raises ExportError."""
        wrong, wanted = list(self._wrong_library()), []
        for needed in requirements(cann, self.version):
            version = self.packages.get(needed.name)
            if version is None or not needed.specifier.contains(version, prereleases=True):
                wanted.append(f"{needed.name}{needed.specifier}")
                wrong.append(f"{needed.name} {version}" if version else f"no {needed.name}")
        if not wrong:
            return
        install = " ".join(map(quoted, ("-m", "pip", "install", *wanted)))
        install = f"run `{quoted(str(self.executable))} {install}`, or " if wanted else ""
        version = ".".join(map(str, self.version))
        raise ExportError(
            f"CANN {cann} compiles with {self.executable} (Python {version}), which has "
            f"{', '.join(wrong)}; {install}name another Python with {Option.PYTHON}"
        )

    def _wrong_library(self) -> Iterator[str]:
        if self.library is None:
            major, minor = self.version
            yield f"no libpython{major}.{minor}.so.1.0 (it is built without --enable-shared)"


def requirements(cann: str, python: tuple[int, int]) -> list[Requirement]:
    """What version `cann` of CANN needs of a Python of this version."""
    release = tuple(int(part) for part in re.findall(r"\d+", cann)[:2])
    bounds = _BEFORE_9_0 if release < (9, 0) else _BEFORE_9_1 if release < (9, 1) else _SINCE_9_1
    place = {"python_version": ".".join(map(str, python))}
    found = map(Requirement, (*_ALWAYS, *bounds))
    return [one for one in found if one.marker is None or one.marker.evaluate(place)]


def own_python() -> Path:
    """This program's interpreter, where MindSpore Lite's package may be installed."""
    return Path(sys.executable)


def find_python(named: str | None = None) -> Path | None:
    """The interpreter that was named, else the first `python3` of PATH outside this program's own
    environment; None where there is none. Raises UsageError for a name that CANN could not use."""
    if named is None:
        found = shutil.which("python3", path=_path())
        return Path(found) if found else None
    found = shutil.which(named) or shutil.which(typed_path(named))
    if found is None:
        raise UsageError(f"{Option.PYTHON} {named} is no program")
    beside = Path(found).absolute().with_name("python3")
    if not (beside.exists() and beside.samefile(found)):
        raise UsageError(
            f"{Option.PYTHON} {named}: CANN takes what is called python3 in {beside.parent}, which "
            f"is {'another' if beside.exists() else 'not there'}; name one that has this name"
        )
    return beside


def environment(python: Path | None, libraries: Iterable[Path | str]) -> dict[str, str]:
    """This process's environment without this program's own Python, with `python` and the folders
    `libraries` first."""
    made = {
        name: value
        for name, value in os.environ.items()
        if name not in {"VIRTUAL_ENV", "PYTHONHOME", "__PYVENV_LAUNCHER__"}
    }
    made["PATH"] = _path()
    if python is not None:
        made["PATH"] = os.pathsep.join(filter(None, (str(python.parent), made["PATH"])))
    if before := [str(folder) for folder in libraries]:
        after = made.get("LD_LIBRARY_PATH", "")
        made["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (*before, after)))
    return made


def _path() -> str:
    """PATH without the folder of this program's environment, if it has one."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix != sys.base_prefix:
        own = Path(sys.prefix) / "bin"
        folders = [folder for folder in folders if Path(folder) != own]
    return os.pathsep.join(folders)
