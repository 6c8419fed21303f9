from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from q35chat.ascend.native_log import native_log
from q35chat.commands import doctor
from q35chat.commands.doctor import Outcome, try_operators
from q35chat.diagnosis.checks import Check, Group
from q35chat.errors import OutputError
from q35export.ascend.operator_cases import OperatorCase, operator_cases
from tests.cli.scripted import recorded
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.converter import install_converter
from tests.support.disk import full_after

GROUPS = [Group("NPU", (Check("NPU 0", "ok", "310P3"),))]
NAMES = [
    "IncreFlashAttention, 17 slots, expanded heads",
    "IncreFlashAttention, 17 slots, grouped heads",
    "Scatter, slot 0 of 17",
    "Scatter, slot 16 of 17",
    "IncreFlashAttention, 2048 slots, expanded heads",
    "IncreFlashAttention, 2048 slots, grouped heads",
    "Scatter, slot 0 of 2048",
    "Scatter, slot 2047 of 2048",
    "RecurrentGatedDeltaRule, fresh",
    "RecurrentGatedDeltaRule, continued",
    "RecurrentGatedDeltaRule, padded",
    "ChunkGatedDeltaRule, 128 tokens, fresh",
    "ChunkGatedDeltaRule, 128 tokens, continued",
    "ChunkGatedDeltaRule, 128 tokens, padded",
]


@pytest.fixture
def machine(npu: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    install_converter(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(doctor, "_RUNS", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield npu
    native_log(tmp_path / "any").remove()


def run(
    folder: Path, cases: Sequence[OperatorCase] | None = None
) -> tuple[int, dict[str, object], str]:
    seen = recorded()
    report = folder / "report.json"
    code = try_operators(seen.console, GROUPS, device_id=0, report=report, cases=cases)
    return code, json.loads(report.read_text(encoding="utf-8")), seen.err.getvalue()


def test_every_kernel_is_tried_and_reported(machine: Npu, tmp_path: Path) -> None:
    code, report, text = run(tmp_path)

    outcomes = report["outcomes"]
    assert isinstance(outcomes, list)
    assert [outcome["name"] for outcome in outcomes] == NAMES
    refused = [outcome for outcome in outcomes if outcome["stage"] != "passed"]
    assert [outcome["name"] for outcome in refused] == [NAMES[1], NAMES[5]]  # as on a 310P
    assert not any(outcome["required"] for outcome in refused)
    assert all(outcome["ms"] > 0 for outcome in outcomes if outcome not in refused)
    assert report["machine"] == [{"title": "NPU", "checks": [
        {"name": "NPU 0", "status": "ok", "found": "310P3", "advice": ""}]}]  # fmt: skip
    assert code == 0
    assert "the 310P takes as many key-value heads as heads" in text


def first(name: str) -> OperatorCase:
    return next(case for case in operator_cases() if case.name.startswith(name))


def test_a_wrong_result_is_news_with_numbers(machine: Npu, tmp_path: Path) -> None:
    case = first("Scatter")
    wrong = replace(case, outputs=(case.outputs[0] + np.float16(1),))
    code, _, text = run(tmp_path, [wrong])

    assert code == 1
    assert "wrong result" in text
    assert "cosine" in text


def test_a_kernel_that_the_model_does_not_need_may_fail(
    machine: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_FAILS", "no-vendor")
    case = first("IncreFlashAttention, 17 slots, grouped")
    code, _, text = run(tmp_path, [case])

    assert code == 0
    assert "convert" in text
    assert "install its vendor package" in text


def test_a_failure_on_the_device_names_the_cause(machine: Npu, tmp_path: Path) -> None:
    machine.fail_predicts = 1
    code, report, text = run(tmp_path, [first("Recurrent")])

    assert code == 1
    assert "Execute graph failed" in str(report["outcomes"])
    assert "run          RecurrentGatedDeltaRule, fresh: the operator graph failed: Exec" in text


def test_an_error_of_any_kind_leaves_the_other_kernels_to_be_tried(
    machine: Npu, tmp_path: Path
) -> None:
    def broken(graph: object, inputs: object) -> tuple[()]:
        raise LookupError

    cases = [replace(first("Scatter"), build=broken), first("Recurrent")]
    code, report, _ = run(tmp_path, cases)

    stages = [(found["stage"], found["message"]) for found in report["outcomes"]]  # type: ignore[attr-defined]
    assert stages == [("convert", "LookupError"), ("passed", "")]
    assert code == 1


def test_the_report_names_the_kernel_that_is_being_tried(
    machine: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> Outcome:
        raise SystemExit  # as a kernel that takes the process with it

    monkeypatch.setattr(doctor, "_try", ended)
    with pytest.raises(SystemExit):
        run(tmp_path, [first("Chunk")])

    (found,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["outcomes"]
    assert (found["name"], found["stage"]) == (NAMES[11], "started")


def test_a_report_that_cannot_be_written_is_told_before_anything_is_tried(
    machine: Npu, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"cannot write the report .*gone.*; name another file"):
        run(tmp_path / "gone", [first("Scatter")])
    assert machine.builds == 0


def test_a_report_for_which_there_is_no_room_leaves_the_old_one(
    machine: Npu, tmp_path: Path
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
    machine: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_RENAMES", "1")
    code, _, _ = run(tmp_path, [first("Scatter"), first("Recurrent")])

    assert code == 0


def test_without_a_converter_nothing_can_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    seen = recorded()

    assert try_operators(seen.console, GROUPS, device_id=0, report=tmp_path / "r.json") == 3
    assert "no converter here" in seen.err.getvalue()
