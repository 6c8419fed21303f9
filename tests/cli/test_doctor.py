from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from q35chat.ascend import diagnosis as ascend
from q35chat.bundle.bundle import MANIFEST_NAME
from q35chat.bundle.demo import demo_bundle_path, demo_checkpoint
from q35chat.commands.doctor import run_doctor
from q35chat.diagnosis import machine
from q35chat.diagnosis.machine import Library
from q35chat.processes import program
from q35export.ascend.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.cli.scripted import recorded
from tests.diagnosis.test_probes import vendor
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter

TABLE = """\
| 1       310P3                 | OK              | NA           43          0     / 0             |
| 0       0                     | 0000:01:00.0    | 0            1702 / 21527                      |
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    checkpoint = make_checkpoint(folder / "checkpoint", seed=5)
    options: dict[str, dict[str, Any]] = {
        "cpu": {"precision": "fp32"}, "ascend-310p": {"gears": (16,), "image_gears": (4,)},
    }  # fmt: skip
    for target, own in options.items():
        request = ExportRequest(
            str(checkpoint), folder / target, target=target, max_seq_len=32, **own
        )
        export(request, PlainReporter(sys.stderr))
    return folder


@pytest.fixture
def npu_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with everything."""
    install_converter(tmp_path / "bin", monkeypatch)
    tool = tmp_path / "bin" / "npu-smi"
    (tmp_path / "table").write_text(TABLE, encoding="utf-8")
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/table\n", encoding="utf-8")
    tool.chmod(0o755)
    (tmp_path / "cann").mkdir()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    package = vendor(tmp_path / "vendor", *ascend.KERNELS)
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(package))
    monkeypatch.setattr(ascend, "lite_library", lambda: Library("2.9.0"))


def test_a_bundle_for_the_cpu_can_run(exported: Path) -> None:
    seen = recorded()

    assert run_doctor(exported / "cpu", seen.console, as_json=False) == 0
    text = seen.out.getvalue()
    assert text.endswith("\nthe bundle can run here\n")
    assert "  ok       onnxruntime " in text
    assert "\x1b" not in text


@pytest.mark.parametrize("name", ["text/model.bin", "vision/model.bin", "text/model.onnx"])
def test_altered_bytes_of_any_file_are_found_and_the_bundle_cannot_run(
    exported: Path, tmp_path: Path, name: str
) -> None:
    bundle = Path(shutil.copytree(exported / "cpu", tmp_path / "damaged"))
    data = bytearray((bundle / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (bundle / name).write_bytes(data)
    table, report = recorded(), recorded()

    assert run_doctor(bundle, table.console, as_json=False) == 1
    assert run_doctor(bundle, report.console, as_json=True) == 1
    text = table.out.getvalue()
    assert f"  damaged  file             {name} was altered" in text
    assert "-> export it from the folder of its checkpoint, checkpoint, with `" in text
    assert text.endswith("\nthe bundle cannot run here\n")
    checks = json.loads(report.out.getvalue())["groups"][-1]["checks"]
    assert [check["name"] for check in checks if check["status"] == "damaged"] == ["file", "files"]


def test_a_sound_bundle_is_said_to_be_whole_and_the_check_is_seen_on_a_terminal(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = recorded(terminal=True)

    assert run_doctor(exported / "cpu", seen.console, as_json=False) == 0
    assert "  ok       files            " in seen.out.getvalue()
    assert "all as exported" in seen.out.getvalue()
    assert "checking text/model.bin: " in seen.err.getvalue()
    assert seen.err.getvalue().endswith("\r\x1b[K")


@pytest.fixture
def no_npu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing of an NPU."""
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_CUSTOM_OPP_PATH"):
        monkeypatch.delenv(name, raising=False)
    nowhere = ascend.Places({}, tmp_path / "toolkit", tmp_path / "driver", tmp_path / "dev")
    monkeypatch.setattr(ascend.Places, "here", lambda: nowhere)
    monkeypatch.setattr(ascend, "npus", list)
    monkeypatch.setattr(ascend, "lite_library", lambda: Library(None, note="No module"))
    monkeypatch.setattr("q35chat.commands.doctor._converter_name", lambda: None)


def test_an_npu_that_is_neither_here_nor_needed_is_one_calm_line(
    exported: Path, no_npu: None
) -> None:
    calm, full, data = recorded(), recorded(), recorded()

    assert run_doctor(exported / "cpu", calm.console, as_json=False) == 0
    assert run_doctor(exported / "cpu", full.console, as_json=False, everything=True) == 0
    assert run_doctor(exported / "cpu", data.console, as_json=True) == 0
    text = calm.out.getvalue()
    assert "Ascend NPU\n  info     NPU              none found, not needed by this bundle" in text
    assert "missing" not in text
    assert full.out.getvalue().count("  missing ") == 6
    statuses = [check["status"] for group in json.loads(data.out.getvalue())["groups"]
                for check in group["checks"]]  # fmt: skip
    assert statuses.count("missing") == 6


def test_what_a_needed_npu_lacks_is_listed_line_by_line(exported: Path, no_npu: None) -> None:
    seen = recorded()

    assert run_doctor(exported / "ascend-310p", seen.console, as_json=False) == 1
    assert "  missing  CANN " in seen.out.getvalue()
    assert "Ascend NPU" not in seen.out.getvalue()


def test_half_an_npu_is_listed_line_by_line(
    exported: Path, no_npu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ascend, "lite_library", lambda: Library("2.9.0"))
    seen = recorded()

    assert run_doctor(exported / "cpu", seen.console, as_json=False) == 0
    assert "  missing  CANN " in seen.out.getvalue()


def test_a_bundle_for_the_npu_lacks_everything_here(exported: Path) -> None:
    seen = recorded()

    assert run_doctor(exported / "ascend-310p", seen.console, as_json=True) == 1
    report = json.loads(seen.out.getvalue())
    assert report["can_run"] is False
    needed = {check["name"] for check in report["groups"][-1]["checks"]
              if check["status"] == "missing"}  # fmt: skip
    assert needed == {
        "needs mindspore_lite", "needs CANN", "needs operators", "needs NPU", "converted",
    }  # fmt: skip


def test_on_a_machine_with_everything_only_the_conversion_is_missing(
    exported: Path, npu_machine: None
) -> None:
    seen = recorded()

    assert run_doctor(exported / "ascend-310p", seen.console, as_json=False) == 1
    last = seen.out.getvalue().splitlines()[-4:]
    assert last[0].split()[:2] == ["missing", "converted"]
    assert f"-> run {program()} convert {exported}/ascend-310p" in last[1]


def test_a_converted_bundle_can_run_on_a_machine_with_everything(
    exported: Path, npu_machine: None
) -> None:
    from q35export.ascend.converter import find_converter  # noqa: PLC0415

    convert(exported / "ascend-310p", find_converter(), PlainReporter(sys.stderr))

    assert run_doctor(exported / "ascend-310p", recorded().console, as_json=False) == 0


def test_a_probe_that_breaks_does_not_end_it(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(machine, "processor", broken)
    seen = recorded()

    assert run_doctor(exported / "cpu", seen.console, as_json=False) == 0
    assert "ZeroDivisionError: odd" in seen.out.getvalue()


def test_settings_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "q35chat"
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text("nonsense = [", encoding="utf-8")
    seen = recorded()

    run_doctor(None, seen.console, as_json=False)
    assert seen.out.getvalue().startswith("Settings\n  warning  settings")


def test_the_demo_that_was_used_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = demo_bundle_path(demo_checkpoint())
    made.mkdir(parents=True)
    (made / MANIFEST_NAME).write_text("{}", encoding="utf-8")
    seen = recorded()

    assert run_doctor(None, seen.console, as_json=False) == 0
    assert f"the demo, made before: {made}\n" in seen.out.getvalue()


def test_the_demo_is_shown_with_the_pictures_to_ask_it_about() -> None:
    seen = recorded()

    assert run_doctor(None, seen.console, as_json=False) == 0
    (line,) = re.findall(r"  info     sample pictures  (.*)", seen.out.getvalue())
    assert any(path.suffix == ".png" for path in Path(line).iterdir())


def test_a_folder_that_is_no_bundle_cannot_run(tmp_path: Path) -> None:
    assert run_doctor(tmp_path, recorded().console, as_json=False) == 1
