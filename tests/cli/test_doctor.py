from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.ascend import diagnosis as ascend
from q35chat.ascend.kernel_trial import KernelTrial
from q35chat.ascend.native_log import native_log
from q35chat.bundle.bundle import MANIFEST_NAME
from q35chat.bundle.demo import demo_bundle_path, demo_checkpoint
from q35chat.commands import doctor
from q35chat.commands.doctor import CaseOutcome, run_doctor, try_operators
from q35chat.diagnosis import machine
from q35chat.diagnosis.checks import Check, Group
from q35chat.diagnosis.machine import Library
from q35chat.errors import OutputError
from q35chat.processes import program
from q35export.ascend.mindir import convert
from q35export.ascend.operator_cases import OperatorCase, operator_cases
from q35export.progress import PlainReporter
from tests.cli.scripted import recorded
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter
from tests.support.disk import full_after
from tests.support.exported import export_bundle

LOOK = cache(machine.look)
TABLE = """\
| 1       310P3                 | OK              | NA           43          0     / 0             |
| 0       0                     | 0000:01:00.0    | 0            1702 / 21527                      |
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    gears: dict[str, Any] = {"gears": (16,), "image_gears": (4,)}
    model = make_checkpoint(folder / "checkpoint", seed=5)
    export_bundle(model, folder / "cpu", target="cpu", max_seq_len=32, precision="fp32")
    export_bundle(model, folder / "ascend-310p", target="ascend-310p", max_seq_len=32, **gears)
    return folder


@pytest.fixture(autouse=True)
def looked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is the same for every test here, and a process to look takes its time."""
    monkeypatch.setattr(machine, "look", LOOK)


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
    *_, converted, advice, memory, _, _ = seen.out.getvalue().splitlines()
    assert converted.split()[:2] == ["missing", "converted"]
    assert f"-> run {program()} convert {exported}/ascend-310p" in advice
    assert "if it grows as those published for Qwen3.5-4B" in memory


def test_a_converted_bundle_can_run_on_a_machine_with_everything(
    exported: Path, npu_machine: None
) -> None:
    from q35export.ascend.converter import find_converter  # noqa: PLC0415

    convert(exported / "ascend-310p", find_converter(), PlainReporter(sys.stderr))
    seen = recorded()

    assert run_doctor(exported / "ascend-310p", seen.console, as_json=False) == 0
    assert re.search(r"ok +chip memory .*a chip has 21\.0 GiB: all fit", seen.out.getvalue())


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


GROUPS = [Group("NPU", (Check("NPU 0", "ok", "310P3"),))]
NAMES = [
    "IncreFlashAttention, 17 slots, expanded heads",
    "IncreFlashAttention, 17 slots, grouped heads",
    "Scatter, slot 0 of 17",
    "Scatter, slot 16 of 17",
    "Selection, slot 0 of 17",
    "Selection, slot 16 of 17",
    "IncreFlashAttention, 2048 slots, expanded heads",
    "IncreFlashAttention, 2048 slots, grouped heads",
    "Scatter, slot 0 of 2048",
    "Scatter, slot 2047 of 2048",
    "Selection, slot 0 of 2048",
    "Selection, slot 2047 of 2048",
    "RecurrentGatedDeltaRule, fresh",
    "RecurrentGatedDeltaRule, continued",
    "RecurrentGatedDeltaRule, padded",
    "RecurrentGatedDeltaRule, inputs in order, continued",
    "RecurrentGatedDeltaRule310P, continued",
    "RecurrentGatedDeltaRule310P, inputs in order, continued",
    "RecurrentGatedDeltaRule, 4 tokens",
    "RecurrentGatedDeltaRule, inputs in order, 4 tokens",
    "RecurrentGatedDeltaRule310P, 4 tokens",
    "RecurrentGatedDeltaRule310P, inputs in order, 4 tokens",
    "ChunkGatedDeltaRule, 128 tokens, fresh",
    "ChunkGatedDeltaRule, 128 tokens, continued",
    "ChunkGatedDeltaRule, 128 tokens, padded",
    "QuantBatchMatmul, 1 token",
    "QuantBatchMatmul, 128 tokens",
    "QuantBatchMatmul, 512 tokens",
]


@pytest.fixture
def device(npu: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    install_converter(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(doctor, "_RUNS", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield npu
    native_log(tmp_path / "any").remove()


def tried(
    folder: Path, cases: Sequence[OperatorCase] | None = None
) -> tuple[int, dict[str, object], str]:
    seen = recorded()
    report = folder / "report.json"
    code = try_operators(seen.console, GROUPS, device_id=0, report=report, cases=cases)
    return code, json.loads(report.read_text(encoding="utf-8")), seen.err.getvalue()


def test_every_kernel_is_tried_and_reported(device: Npu, tmp_path: Path) -> None:
    code, report, text = tried(tmp_path)

    outcomes = report["outcomes"]
    assert isinstance(outcomes, list)
    assert [outcome["name"] for outcome in outcomes] == NAMES
    refused = [outcome for outcome in outcomes if outcome["stage"] != "passed"]
    grouped = [name for name in NAMES if name.endswith("grouped heads")]
    other = [name for name in NAMES if "310P" in name]
    assert [outcome["name"] for outcome in refused] == [*grouped, *other]  # as on a 310P of today
    assert text.splitlines()[-2] == "the kernels work as bundles have them"
    assert report["kernels"] == ""
    assert all(outcome["ms"] > 0 for outcome in outcomes if outcome not in refused)
    assert report["machine"] == [{"title": "NPU", "checks": [
        {"name": "NPU 0", "status": "ok", "found": "310P3", "advice": ""}]}]  # fmt: skip
    assert code == 0
    assert "the 310P takes as many key-value heads as heads" in text


def test_the_way_that_works_is_said_and_can_be_given_to_convert(
    device: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_BINDS", "position")
    cases = [case for case in operator_cases() if case.name.startswith("RecurrentGatedDeltaRule")]
    code, report, text = tried(tmp_path, cases)

    assert (code, report["kernels"]) == (0, "ordered-inputs")
    trial = KernelTrial.kept()
    assert trial is not None
    assert (trial.kernels, trial.report) == ("ordered-inputs", str(tmp_path / "report.json"))
    assert "convert with --kernels ordered-inputs, as it does here by itself" in text


def first(name: str) -> OperatorCase:
    return next(case for case in operator_cases() if case.name.startswith(name))


def test_the_report_has_the_time_of_every_gear_and_of_a_step(
    exported: Path, device: Npu, tmp_path: Path
) -> None:
    from q35export.ascend.converter import find_converter  # noqa: PLC0415

    bundle = Path(shutil.copytree(exported / "ascend-310p", tmp_path / "out"))
    convert(bundle, find_converter(), PlainReporter(sys.stderr))
    device.given_outputs = "refuse"
    seen, report = recorded(), tmp_path / "report.json"
    try_operators(
        seen.console, GROUPS, device_id=0, report=report, bundle=bundle, cases=[first("Scatter")]
    )

    found = json.loads(report.read_text(encoding="utf-8"))["gears"]
    assert [(one["graph"], one["tokens"], one["by_host"]) for one in found] == [
        ("prefill", 16, True),
        ("decode", 1, True),
    ]
    assert all(one["ms"] > 0 for one in found)
    assert re.search(r"prefill of 16 tokens: .* ms, through the host", seen.err.getvalue())


def test_a_bundle_whose_gears_cannot_be_timed_costs_no_report(device: Npu, tmp_path: Path) -> None:
    code, report, _ = tried(tmp_path, [first("Selection")])
    assert (code, report["gears"]) == (0, "no bundle for an NPU was chosen")
    path = tmp_path / "report.json"
    try_operators(
        recorded().console, GROUPS, device_id=0, report=path, bundle=tmp_path / "gone",
        cases=[first("Selection")],
    )  # fmt: skip

    (found,) = json.loads(path.read_text(encoding="utf-8"))["gears"]
    assert "gone does not exist" in found["error"]


def test_a_wrong_result_is_news_with_numbers(device: Npu, tmp_path: Path) -> None:
    case = first("Scatter")
    wrong = replace(case, outputs=(case.outputs[0] + np.float16(1),))
    code, _, text = tried(tmp_path, [wrong])

    assert code == 1
    assert "wrong result" in text
    assert "cosine" in text


def test_a_kernel_that_the_model_does_not_need_may_fail(
    device: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_FAILS", "no-vendor")
    case = first("IncreFlashAttention, 17 slots, grouped")
    code, _, text = tried(tmp_path, [case])

    assert code == 0
    assert "convert" in text
    assert "install its vendor package" in text


def test_a_failure_on_the_device_names_the_cause(device: Npu, tmp_path: Path) -> None:
    device.fail_predicts = 2  # also the other way
    code, report, text = tried(tmp_path, [first("Recurrent")])

    assert code == 1
    assert "Execute graph failed" in str(report["outcomes"])
    assert "run          RecurrentGatedDeltaRule, fresh: the operator graph failed: Exec" in text


def test_an_error_of_any_kind_leaves_the_other_kernels_to_be_tried(
    device: Npu, tmp_path: Path
) -> None:
    def broken(graph: object, inputs: object) -> tuple[()]:
        raise LookupError

    cases = [replace(first("Scatter"), build=broken), first("Recurrent")]
    code, report, _ = tried(tmp_path, cases)

    stages = [(found["stage"], found["message"]) for found in report["outcomes"]]  # type: ignore[attr-defined]
    assert stages == [("convert", "LookupError"), ("passed", "")]
    assert code == 1


def test_the_report_names_neither_user_nor_host_nor_home(
    device: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/wang")
    monkeypatch.setattr("platform.node", lambda: "lab-7")
    found = Group("Python", (Check("python", "ok", "/home/wang/q35chat/bin/python of wang@lab-7"),))
    report = tmp_path / "report.json"

    try_operators(recorded().console, [found], device_id=0, report=report, cases=[first("Scatter")])
    assert "~/q35chat/bin/python of USER@HOST" in report.read_text(encoding="utf-8")


def test_the_report_names_the_kernel_that_is_being_tried(
    device: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> CaseOutcome:
        raise SystemExit  # as a kernel that takes the process with it

    monkeypatch.setattr(doctor, "_try", ended)
    with pytest.raises(SystemExit):
        tried(tmp_path, [first("Chunk")])

    (found,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["outcomes"]
    assert (found["name"], found["stage"]) == ("ChunkGatedDeltaRule, 128 tokens, fresh", "started")


def test_a_report_that_cannot_be_written_is_told_before_anything_is_tried(
    device: Npu, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"cannot write the report .*gone.*; name another file"):
        tried(tmp_path / "gone", [first("Scatter")])
    assert device.builds == 0


def test_a_report_for_which_there_is_no_room_leaves_the_old_one(
    device: Npu, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    report.write_text("old", encoding="utf-8")
    with full_after(100), pytest.raises(OutputError, match="File too large") as failure:
        try_operators(
            recorded().console, GROUPS, device_id=0, report=report, cases=[first("Scatter")]
        )
    assert failure.value.exit_code == 1
    assert report.read_text(encoding="utf-8") == "old"


def test_a_file_that_lost_its_names_is_fed_in_order(
    device: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_RENAMES", "1")
    code, _, _ = tried(tmp_path, [first("Scatter"), first("Recurrent")])

    assert code == 0


def test_without_a_converter_nothing_can_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    seen = recorded()

    assert try_operators(seen.console, GROUPS, device_id=0, report=tmp_path / "r.json") == 3
    assert "no converter here" in seen.err.getvalue()
