"""`q35chat doctor`: what is there and what is missing, as a table or as JSON; with `--operators`
every kernel of the 310P tried on this machine, in one report file.

The report is for the owner of a card to run once and send back. The file is written before each
kernel is tried: one that ends the process is the one that it names as started.
"""

from __future__ import annotations

import datetime
import platform
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from q35chat import __version__
from q35chat.ascend.options import log_path
from q35chat.commands import options as opt
from q35chat.commands.console import Console, StatusLine
from q35chat.errors import BundleError, OutputError, UsageError
from q35chat.text import readable_size, safe_line, timestamp

if TYPE_CHECKING:
    from q35chat.diagnosis.checks import Check, Group
    from q35export.ascend.converter import Converter
    from q35export.ascend.forms import KernelForms
    from q35export.ascend.operator_cases import OperatorCase
    from q35export.verify.metrics import Difference

_OF_THE_TABLE = {"as_json": "--json", "everything": "--all"}
_OF_THE_REPORT = {"out": "--report", "device_id": "--device-id"}
_WIDTH = 600
_SHOWN_BYTES = 64 << 20
_NPU_GROUPS = ("NPU runtime", "CANN", "Driver", "NPU", "Custom operators", "Conversion")
_RUNS = 20
_COSINE, _NRMSE = 0.999, 0.02
_LOG_LINES = 40


def doctor(
    context: typer.Context,
    model_dir: opt.ModelDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list what an NPU needs where there is none.")
    ] = False,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="Try every kernel on the NPU and write a report to send."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--report", parser=opt.path, help="The file of --operators' report."),
    ] = None,
    device_id: opt.DeviceId = 0,
    _debug: opt.Debug = False,
) -> int:
    """Show what is here and what is missing; 1 where the chosen bundle cannot run."""
    from q35chat.bundle.library import folder_of

    _check_doctor(opt.given_options(context), operators=operators)
    console = Console.standard()
    model_dir = None if model_dir is None else folder_of(model_dir)
    if not operators:
        return run_doctor(model_dir, console, as_json=as_json, everything=everything)
    path, trouble = _chosen(model_dir)
    groups = [*trouble, *diagnose(path, console)]
    return try_operators(console, groups, device_id=device_id, report=out, bundle=path)


def _check_doctor(given: Collection[str], *, operators: bool) -> None:
    """Refuse options that only the other kind of diagnosis reads. Raises UsageError."""
    for name, option in (_OF_THE_TABLE if operators else _OF_THE_REPORT).items():
        if name in given and operators:
            raise UsageError(f"--operators writes everything as one report; drop {option} or it")
        if name in given:
            raise UsageError(f"{option} is for --operators; add that, or leave {option} out")


def diagnose(path: Path | None, console: Console) -> list[Group]:
    """Everything, about the bundle at `path`; None is the demo. How its check goes is shown on a
    terminal."""
    from q35chat.ascend import diagnosis as ascend
    from q35chat.bundle.demo import sample_pictures
    from q35chat.diagnosis import bundle, machine
    from q35chat.diagnosis.checks import run_probe

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
        run_probe("Custom operators", lambda: ascend.kernels(places, library)),
        run_probe("Conversion", lambda: ascend.converter(_converter_name())),
    ]
    line, read = StatusLine(console), dict[str, int]()

    def tell(name: str, count: int) -> None:
        before = read.get(name, -1)
        read[name] = max(before, 0) + count
        if read[name] // _SHOWN_BYTES != before // _SHOWN_BYTES:
            line.show(f"checking {name}: {readable_size(read[name])}")

    try:
        pictures, demo = sample_pictures(), _made_demo() if path is None else None
        checks = partial(bundle.bundle, path, groups, tell, pictures, demo)
        return [*groups, run_probe("Bundle", lambda: (*checks(), *_fit(path)))]
    finally:
        line.clear()


def _fit(path: Path | None) -> Iterator[Check]:
    """How the graphs of a bundle for an NPU fit its chips; nothing of any other folder."""
    from q35chat.ascend.diagnosis import fit
    from q35chat.ascend.memory import graph_sizes
    from q35chat.bundle.foreign import open_bundle

    with suppress(BundleError):  # what is wrong with it has been said
        if (
            path is not None
            and (opened := open_bundle(path, check="names")).manifest.target != "cpu"
        ):
            yield from fit(graph_sizes(opened))


def _made_demo() -> Path | None:
    """Where the demo is, if it was used before."""
    from q35chat.bundle.bundle import is_bundle
    from q35chat.bundle.demo import demo_bundle_path, demo_checkpoint

    try:
        folder = demo_bundle_path(demo_checkpoint())
    except (BundleError, OSError):
        return None
    return folder if is_bundle(folder) else None


def run_doctor(
    option: Path | None, console: Console, *, as_json: bool, everything: bool = False
) -> int:
    """Print the diagnosis; the exit code: 1 where the chosen bundle cannot run.

    The table has one line for all that belongs to an NPU where there is nothing of it and the
    bundle runs without, unless `everything` is wanted. JSON always has everything.
    """
    path, trouble = _chosen(option)
    groups = [*trouble, *diagnose(path, console)]
    runs = all(check.status in ("ok", "info") for check in groups[-1].checks)
    if as_json:
        text = _json(groups, path, runs=runs)
    else:
        text = _table(groups if everything else _without_npu(groups), runs=runs)
    console.out.write(text)
    console.out.flush()
    return 0 if runs else 1


def _chosen(option: Path | None) -> tuple[Path | None, list[Group]]:
    """The bundle that the chat would use, and what is wrong with the settings."""
    from q35chat.commands.model import choose_model
    from q35chat.diagnosis.checks import Check, Group
    from q35chat.settings import load_settings

    if option is not None:
        return option, []
    try:
        choice = choose_model(None, load_settings(), Path)
    except Exception as error:  # noqa: BLE001  (a diagnosis goes on)
        return None, [Group("Settings", (Check("settings", "warning", str(error)),))]
    return None if choice.is_demo else choice.path, []


def _converter_name() -> str | None:
    from q35export.ascend.converter import find_converter

    found = find_converter()
    return found.name if found else None


def _without_npu(groups: Sequence[Group]) -> list[Group]:
    """The groups with those of an NPU as one line, where nothing of an NPU is here or needed."""
    from q35chat.diagnosis.checks import Check, Group

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
    import json

    report = {
        "bundle": None if path is None else str(path),
        "can_run": runs,
        "groups": [asdict(group) for group in groups],
    }
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class CaseOutcome:
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
    bundle: Path | None = None,
    converter: str | None = None,
    cases: Sequence[OperatorCase] | None = None,
) -> int:
    """Try every case, and every gear of a converted `bundle`, and write the report; the exit code:
    3 without a converter, 1 where a kernel that the model needs does not work. Raises OutputError
    for a report that cannot be written."""
    from q35chat.ascend.diagnosis import Places, cann_version
    from q35chat.ascend.kernel_trial import KernelTrial, TrialPlace
    from q35export.ascend.converter import find_converter
    from q35export.ascend.operator_cases import operator_cases, working_forms

    places = Places.here()
    tool = find_converter(converter, None, cann_version(places))
    if tool is None:
        console.note("no converter here: put converter_lite on PATH, or set MSLITE_HOME")
        return 3
    tool.check()
    path = report or Path(f"q35chat-operators-{datetime.date.today():%Y%m%d}.json")
    outcomes: list[CaseOutcome] = []
    tried = list(cases or operator_cases())
    with tempfile.TemporaryDirectory(prefix="q35chat-operators-") as folder:
        for number, case in enumerate(tried):
            started = CaseOutcome(case.name, case.required, "started")
            _write(path, _report([*outcomes, started], groups, tool))
            outcome = _try(case, tool, Path(folder) / str(number), device_id)
            outcomes.append(outcome)
            console.note(f"{'ok' if outcome.passed else outcome.stage:12} {outcome.name}"
                         f"{_numbers(outcome)}")  # fmt: skip
    forms = working_forms([(case, one.passed) for case, one in zip(tried, outcomes, strict=True)])
    console.note(_advised(forms))
    kernels = None if forms is None else str(forms)
    facts: dict[str, object] = {"kernels": kernels, "gears": "started"}
    _write(path, _report(outcomes, groups, tool, facts))
    place = TrialPlace.here(places.environment, tool.cann, tool.name)
    KernelTrial(kernels, str(path.resolve()), place).keep()
    facts["gears"] = _gears(bundle, device_id, console)
    _write(path, _report(outcomes, groups, tool, facts))
    console.note(f"report: {path}")
    return 1 if forms is None else 0


def _gears(path: Path | None, device_id: int, console: Console) -> object:
    """What each gear and a step of a converted bundle take, or why nobody knows."""
    from q35chat.ascend.decoder import GearedDecoder
    from q35chat.ascend.gear_times import gear_times
    from q35chat.ascend.options import NpuOptions
    from q35chat.bundle.foreign import open_bundle
    from q35chat.chat.engine import open_decoder
    from q35chat.commands.model import graph_opener

    found: list[dict[str, object]] = []
    try:
        if path is None or (opened := open_bundle(path, "names")).manifest.target == "cpu":
            return "no bundle for an NPU was chosen"
        runtime = graph_opener(opened, None, NpuOptions(device_id))
        decoder = open_decoder(opened, runtime, runtime.open_graph)
        try:
            assert isinstance(decoder, GearedDecoder)
            for each in gear_times(decoder):
                found.append(asdict(each))
                through = ", through the host" if each.by_host else ""
                console.note(f"{each.graph} of {each.tokens} tokens: {each.ms:.2f} ms{through}")
        finally:
            decoder.close()
    except Exception as error:  # noqa: BLE001  (the report is written in any case)
        found.append({"error": " ".join(str(error).split()) or type(error).__name__})
        console.note(f"gears: {found[-1]['error']}")
    return found


def _advised(forms: KernelForms | None) -> str:
    """How a bundle is to be converted after all that."""
    if forms is None:
        return (
            "a kernel works in no way: export with --no-fused-prefill and --no-fused-decode, "
            "and send the report"
        )
    if not str(forms):
        return "the kernels work as bundles have them"
    return f"convert with --kernels {forms}, as it does here by itself: the first way that works"


def _try(case: OperatorCase, tool: Converter, folder: Path, device_id: int) -> CaseOutcome:
    """Convert, run, compare; whatever fails at any stage is an outcome."""
    from q35chat.ascend.native_log import native_log
    from q35export.ascend.converter import ConversionJob, run_converter
    from q35export.ascend.converter_config import DEFAULT_SETTINGS
    from q35export.verify.metrics import difference, worst

    folder.mkdir()
    stage, started = "convert", perf_counter()
    native = native_log(log_path())
    mark, log = native.mark(), folder / "convert.log"
    try:
        case.save(folder / "model.onnx")
        (folder / "converter.ini").write_text(DEFAULT_SETTINGS.text(), encoding="ascii")
        made = folder / "operator"
        graph, config = folder / "model.onnx", folder / "converter.ini"
        job = ConversionJob(case.name, graph, config, made, log, keeps_int64=case.in_int8)
        run_converter(tool, job, lambda: None)
        convert_ms = (perf_counter() - started) * 1e3
        stage = "run"
        results, ms = _run(case, next(folder.glob("operator*.mindir")), device_id)
        stage = "compare"
        pairs = zip(results, case.outputs, strict=True)
        found = worst([difference(result, wanted) for result, wanted in pairs])
    except Exception as error:  # noqa: BLE001  (the other kernels are still to be tried)
        message = " ".join(str(error).split()) or type(error).__name__
        if stage != "convert":
            text = native.since(mark)
        else:
            text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        end = "\n".join(text.splitlines()[-_LOG_LINES:])
        return CaseOutcome(case.name, case.required, stage, message, log=end)
    right = found.cosine >= _COSINE and found.nrmse <= _NRMSE
    ended = "passed" if right else "wrong result"
    return CaseOutcome(case.name, case.required, ended, "", found, convert_ms, ms)


def _run(case: OperatorCase, path: Path, device_id: int) -> tuple[list[Any], float]:
    """Outputs of the case, and the median time of a run in milliseconds."""
    import statistics

    import numpy as np

    from q35chat.ascend.mindspore_lite import LiteSession
    from q35chat.ascend.native_log import native_log
    from q35chat.ascend.options import NpuOptions

    session = LiteSession(path, "operator", NpuOptions(device_id), native_log(log_path()))
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


def _numbers(outcome: CaseOutcome) -> str:
    if outcome.difference is None:
        return f": {outcome.message}"
    found = outcome.difference
    return f": {outcome.ms:.2f} ms, cosine {found.cosine:.6f}, NRMSE {found.nrmse:.5f}"


def _write(path: Path, text: str) -> None:
    from q35chat.files import replace_file

    try:
        replace_file(path, text)
    except OSError as error:
        raise OutputError(
            f"cannot write the report {path}: {error.strerror}; name another file with --report"
        ) from error


def _report(
    outcomes: Sequence[CaseOutcome],
    groups: Sequence[Group],
    tool: Converter,
    found: Mapping[str, object] | None = None,
) -> str:
    """Everything that whoever reads it must know, without names of the user and the machine."""
    import json

    facts = {
        "q35chat": __version__,
        "created": timestamp(),
        "converter": tool.name,
        **(found or {}),
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "machine": [asdict(group) for group in groups],
    }
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    for path, word in ((Path.cwd(), "."), (Path.home(), "~")):
        text = text.replace(f"{path}/", f"{word}/") if path != Path("/") else text
    for name, word in ((Path.home().name, "USER"), (platform.node(), "HOST")):
        if name not in {"", "root", "localhost"}:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    return text + "\n"
