"""`q35chat doctor --operators`: every kernel of the 310P tried on this machine, in one report file.

For the owner of a card to run once and send back. The file is written before each kernel is tried:
one that ends the process is the one that it names as started.
"""

from __future__ import annotations

import datetime
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from q35chat import __version__
from q35chat.ascend.mindspore_lite import LiteDevice, LiteSession
from q35chat.ascend.native_log import native_log
from q35chat.commands.console import Console
from q35chat.commands.npu import log_path
from q35chat.diagnosis.checks import Group
from q35chat.errors import OutputError
from q35chat.files import replace_file
from q35export.ascend.converter import Converter, Job, find_converter, run_converter
from q35export.ascend.converter_config import PRECISION
from q35export.ascend.operator_cases import OperatorCase, operator_cases
from q35export.verify.metrics import Difference, difference, worst

_RUNS = 20
_COSINE, _NRMSE = 0.999, 0.02
_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case ended. `stage` is where it stopped; `ms` is the median of a run; `log` is the
    end of what the converter or the library wrote, where it failed."""

    name: str
    required: bool
    stage: str
    message: str = ""
    difference: Difference | None = None
    convert_ms: float = 0.0
    ms: float = 0.0
    log: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and came out right."""
        return self.stage == "passed"


def try_operators(
    console: Console,
    groups: Sequence[Group],
    *,
    device_id: int,
    report: Path | None = None,
    converter: str | None = None,
    cases: Sequence[OperatorCase] | None = None,
) -> int:
    """Try every case and write the report; the exit code: 3 without a converter, 1 where a kernel
    that the model needs does not work. Raises OutputError for a report that cannot be written."""
    tool = find_converter(converter)
    if tool is None:
        console.note("no converter here: put converter_lite on PATH, or set MSLITE_HOME")
        return 3
    path = report or Path(f"q35chat-operators-{datetime.date.today():%Y%m%d}.json")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="q35chat-operators-") as folder:
        for number, case in enumerate(cases or operator_cases()):
            started = Outcome(case.name, case.required, "started")
            _write(path, _report([*outcomes, started], groups, tool))
            outcome = _try(case, tool, Path(folder) / str(number), device_id)
            outcomes.append(outcome)
            console.note(f"{'ok' if outcome.passed else outcome.stage:12} {outcome.name}"
                         f"{_numbers(outcome)}")  # fmt: skip
    _write(path, _report(outcomes, groups, tool))
    console.note(f"report: {path}")
    return 0 if all(outcome.passed or not outcome.required for outcome in outcomes) else 1


def _try(case: OperatorCase, tool: Converter, folder: Path, device_id: int) -> Outcome:
    """Convert, run, compare; whatever fails at any stage is an outcome."""
    folder.mkdir()
    stage, started = "convert", perf_counter()
    native = native_log(log_path())
    mark, log = native.mark(), folder / "convert.log"
    try:
        case.save(folder / "model.onnx")
        (folder / "converter.ini").write_text(PRECISION, encoding="ascii")
        made = folder / "operator"
        job = Job(case.name, folder / "model.onnx", folder / "converter.ini", made, log)
        run_converter(tool, job, lambda: None)
        convert_ms = (perf_counter() - started) * 1e3
        stage = "run"
        results, ms = _run(case, next(folder.glob("operator*.mindir")), device_id)
        stage = "compare"
        pairs = zip(results, case.outputs, strict=True)
        found = worst([difference(result, wanted) for result, wanted in pairs])
    except Exception as error:  # noqa: BLE001  (the other kernels are still to be tried)
        message = " ".join(str(error).split()) or type(error).__name__
        text = _read(log) if stage == "convert" else native.since(mark)
        return Outcome(case.name, case.required, stage, message, log=_end(text))
    right = found.cosine >= _COSINE and found.nrmse <= _NRMSE
    ended = "passed" if right else "wrong result"
    return Outcome(case.name, case.required, ended, "", found, convert_ms, ms)


def _run(case: OperatorCase, path: Path, device_id: int) -> tuple[list[Any], float]:
    """Outputs of the case, and the median time of a run in milliseconds."""
    session = LiteSession(path, "operator", LiteDevice(device_id=device_id), native_log(log_path()))
    try:
        inputs = {}
        for spec, array in zip(session.inputs, case.inputs.values(), strict=True):
            inputs[spec.name] = session.allocate(array.shape, spec.dtype)
            inputs[spec.name].write(array.astype(spec.dtype, copy=False))
        outputs = {
            spec.name: session.allocate(wanted.shape, spec.dtype)
            for spec, wanted in zip(session.outputs, case.outputs, strict=True)
        }
        run = session.bind(inputs, outputs)
        run()
        results = [np.array(buffer.host()) for buffer in outputs.values()]
        times = []
        for _ in range(_RUNS):
            started = perf_counter()
            run()
            times.append((perf_counter() - started) * 1e3)
        return results, statistics.median(times)
    finally:
        session.close()


def _numbers(outcome: Outcome) -> str:
    if outcome.difference is None:
        return f": {outcome.message}"
    found = outcome.difference
    return f": {outcome.ms:.2f} ms, cosine {found.cosine:.6f}, NRMSE {found.nrmse:.5f}"


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        raise OutputError(
            f"cannot write the report {path}: {error.strerror}; name another file with --report"
        ) from error


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _end(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_LINES:])


def _report(outcomes: Sequence[Outcome], groups: Sequence[Group], tool: Converter) -> str:
    """Everything that whoever reads it must know; paths of this machine are in it."""
    facts = {
        "q35chat": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "converter": tool.name,
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "machine": [asdict(group) for group in groups],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
