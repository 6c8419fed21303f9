"""Which Python CANN gets, and what is refused before a conversion starts."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.errors import ExportError, UsageError
from q35export.ascend.cann_python import CannPython, environment, find_python, requirements

GOOD = CannPython(
    Path("/opt/py/bin/python3"),
    (3, 11),
    "/opt/py/lib",
    {
        "attrs": "24.2.0", "cffi": "1.17.1", "decorator": "5.1.1", "numpy": "1.26.4",
        "protobuf": "3.20.3", "psutil": "6.0.0", "scipy": "1.13.1", "sympy": "1.13.3",
    },
    has_lite=False,
)  # fmt: skip


def python3(folder: Path, name: str = "python3") -> Path:
    """A program that answers as this interpreter does."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def wanted(cann: str, version: tuple[int, int] = (3, 11)) -> set[str]:
    return {f"{one.name}{one.specifier}" for one in requirements(cann, version)}


def test_bounds_follow_the_version_of_cann_and_of_python() -> None:
    assert {"numpy<2,>=1.19.2", "protobuf==3.20.*", "decorator>=4.4.0"} <= wanted("8.5.0")
    assert "numpy>2.1" in wanted("8.5.0", (3, 13))
    assert {"numpy>=1.19.2", "protobuf==3.20.*"} <= wanted("9.0.0")
    assert {"numpy>=1.19.2", "protobuf"} <= wanted("9.1.0")
    assert wanted("8.0.RC2") == wanted("8.5.0")


def test_a_python_that_fits_is_taken() -> None:
    GOOD.check("8.5.0")


@pytest.mark.parametrize(
    ("packages", "cann", "said"),
    [
        (
            {"numpy": "2.1.0"},
            "8.5.0",
            "which has numpy 2.1.0; run `/opt/py/bin/python3 -m pip inst",
        ),
        ({"numpy": "2.1.0"}, "9.0.0", None),
        ({"protobuf": "5.28.0"}, "9.0.0", "protobuf 5.28.0"),
        ({"protobuf": "5.28.0"}, "9.1.0", None),
        ({"sympy": ""}, "9.1.0", "which has no sympy"),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_install(
    packages: dict[str, str], cann: str, said: str | None
) -> None:
    kept = {name: version for name, version in {**GOOD.packages, **packages}.items() if version}
    python = replace(GOOD, packages=kept)
    if said is None:
        python.check(cann)
        return
    with pytest.raises(ExportError) as failed:
        python.check(cann)
    assert said in str(failed.value)
    assert "--python" in str(failed.value)


def test_a_python_without_its_shared_library_is_refused() -> None:
    with pytest.raises(ExportError, match=r"has no libpython3\.11\.so\.1\.0 .*; name another"):
        replace(GOOD, library=None).check("9.1.0")


def test_an_interpreter_tells_of_itself(tmp_path: Path) -> None:
    found = CannPython.probe(python3(tmp_path))

    assert found.version == sys.version_info[:2]
    assert "numpy" in found.packages
    assert not found.has_lite


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\necho no\n", encoding="utf-8")
    program.chmod(0o755)

    with pytest.raises(ExportError, match="does not answer as a Python"):
        CannPython.probe(program)


def test_the_first_python3_of_path_is_not_that_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = python3(tmp_path / "venv" / "bin"), python3(tmp_path / "system")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{other.parent}")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))

    assert find_python() == other
    assert environment(None, ())["PATH"] == str(other.parent)
    assert "VIRTUAL_ENV" not in environment(None, ())


def test_a_named_python_must_be_what_python3_is_beside_it(tmp_path: Path) -> None:
    assert find_python(str(python3(tmp_path / "a"))) == tmp_path / "a" / "python3"
    alone = python3(tmp_path / "b", "python3.9")
    with pytest.raises(UsageError, match="which is not there; name one that has this name"):
        find_python(str(alone))
    python3(alone.parent)
    with pytest.raises(UsageError, match="which is another"):
        find_python(str(alone))
    with pytest.raises(UsageError, match="--python /nowhere/python3 is no program"):
        find_python("/nowhere/python3")


def test_the_converter_runs_with_that_python_first_and_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/cann/lib64")
    monkeypatch.setenv("PATH", "/usr/bin")

    made = environment(GOOD.executable, filter(None, (GOOD.library,)))
    assert made["PATH"] == "/opt/py/bin:/usr/bin"
    assert made["LD_LIBRARY_PATH"] == "/opt/py/lib:/cann/lib64"
