"""`q35chat bench`: measures a bundle, saves the result, compares it with an earlier one."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from q35chat import __version__
from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.commands import options as opt
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.failures import INTERRUPTED
from q35chat.commands.streaming import in_worker, stop_on_interrupt
from q35chat.errors import OutputError, UsageError
from q35chat.text import json_safe, safe_line

if TYPE_CHECKING:
    from q35chat.bench.measure import Round
    from q35chat.bench.results import Result, Subject
    from q35chat.bundle.bundle import Bundle
    from q35chat.engine.decoder import Decoder
    from q35chat.engine.session import GraphSession

Bandwidth = Callable[[int], float | None]
_RUNTIMES = {"cpu": "onnxruntime", "ascend-310p": "mindspore_lite"}
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What `bench` takes; None means: chosen so that it fits."""

    model_dir: opt.ModelDir = None
    prompt: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a prefill. Default: 512, if they fit.")
    ] = None
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Decode steps of a round. Default: 128, if they fit.")
    ] = None
    contexts: Annotated[
        list[int] | None,
        typer.Option(
            "--context",
            min=1,
            help="Tokens that are there before the steps; repeat for more. "
            "Default: 100, half the capacity, and nearly all of it.",
        ),
    ] = None
    repeat: Annotated[int, typer.Option(min=1, help="Rounds of everything.")] = 5
    threads: opt.Threads = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    out: Annotated[
        Path | None, typer.Option("--out", "-o", parser=opt.path, help="Save the result as JSON.")
    ] = None
    compare: Annotated[
        Path | None, typer.Option(parser=opt.path, help="Print ratios to a result that was saved.")
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(parser=opt.path, help="Draw the time of each step into this PNG file."),
    ] = None
    npu: NpuOptions = DEFAULT_NPU


@opt.takes(BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure speed and memory of a bundle; Ctrl+C shows what was measured so far."""
    return run_bench(options, Console.standard())


def run_bench(options: BenchOptions, console: Console, bandwidth: Bandwidth | None = None) -> int:
    """Measure and show; the exit code. Ctrl+C shows what there is. Raises Q35Error."""
    from q35chat.bench.document import read_document
    from q35chat.bench.machine import measured_apart
    from q35chat.bundle.foreign import open_bundle
    from q35chat.commands.model import choose_model, make_demo
    from q35chat.settings import load_settings

    then = read_document(options.compare) if options.compare else None
    _check_places(options)
    choice = choose_model(options.model_dir, load_settings(), lambda: make_demo(console.note))
    bench = _Bench(options, open_bundle(choice.path), bandwidth or measured_apart)
    status = StatusLine(console)
    try:
        with stop_on_interrupt(bench.stop.set):
            for progress in in_worker(bench.run()):
                status.show(f"{progress.text} ({progress.done + 1} of {progress.total})")
    finally:
        status.clear()
    result = bench.result
    if result is None or not (result.prefills or result.decodes):
        console.note("stopped before anything was measured")
        return INTERRUPTED
    _show(result, then, options, console)
    if not result.complete:
        console.note("stopped: this is what was measured so far")
    return 0 if result.complete else INTERRUPTED


@dataclass
class _Bench:
    """One measurement as it comes about; `result` is what there is of it so far."""

    options: BenchOptions
    bundle: Bundle
    bandwidth: Bandwidth
    stop: threading.Event = field(default_factory=threading.Event)
    result: Result | None = None

    def run(self) -> Iterator[Round]:
        """Load and measure; for a worker thread."""
        from q35chat.bench.machine import memory
        from q35chat.bench.measure import Round, make_plan
        from q35chat.bench.results import Result
        from q35chat.chat.engine import open_decoder
        from q35chat.commands.model import graph_opener

        yield Round("loading the model", 0, 1)
        asked, before = self.options, memory()
        runtime = graph_opener(self.bundle, asked.threads, asked.npu)
        sessions: dict[Path, GraphSession] = {}

        def opened(path: Path) -> GraphSession:
            sessions[path] = runtime.open_graph(path)
            return sessions[path]

        started = perf_counter()
        decoder = open_decoder(self.bundle, runtime, opened)
        load_ms = (perf_counter() - started) * 1e3
        try:
            plan = make_plan(
                decoder.capacity,
                prompt=asked.prompt,
                tokens=asked.tokens,
                contexts=tuple(asked.contexts or ()),
                repeat=asked.repeat,
            )
            subject = _subject(self.bundle, decoder.capacity, asked.threads)
            self.result = Result(subject, plan, load_ms, before, memory())
            yield from self._measured(decoder, sessions, self.result)
        finally:
            decoder.close()

    def _measured(
        self, decoder: Decoder, sessions: Mapping[Path, GraphSession], result: Result
    ) -> Iterator[Round]:
        from q35chat.bench.machine import memory
        from q35chat.bench.measure import (
            Allocation,
            DecodeRun,
            Measurement,
            PrefillRun,
            Round,
        )
        from q35chat.bench.traffic import traffic
        from q35chat.chat.checkpoint import GenerationDefaults
        from q35chat.engine.contract import read_contract
        from q35chat.engine.sampling import Sampler

        on_cpu = self.bundle.manifest.target == "cpu"
        if on_cpu:
            path = self.bundle.graph_path("text")
            result.traffic = traffic(path, read_contract(sessions[path]).pairs)
        facts = self.bundle.manifest.model
        rules = GenerationDefaults.read(self.bundle.processor_dir)
        measurement = Measurement(
            decoder,
            result.plan,
            lambda: Sampler(rules.sampling, (), 0),
            self.stop.is_set,
            facts.image_token_id,
        )
        for item in measurement.run():
            match item:
                case Round():
                    yield item
                case PrefillRun():
                    result.prefills.append(item)
                case DecodeRun():
                    found = self.bandwidth(result.subject.threads) if on_cpu else None
                    result.decodes.append(replace(item, bandwidth=found))
                case Allocation():
                    result.allocation = item
            result.after = memory()
        result.complete = not self.stop.is_set()


def _show(
    result: Result, then: dict[str, Any] | None, options: BenchOptions, console: Console
) -> None:
    from q35chat.bench.document import as_text, compare, document
    from q35chat.bench.report import comparison_lines, result_lines

    content = document(result)
    comparison = compare(content, then) if then else None
    if options.out:
        _write(options.out, as_text(content))
        console.note(f"saved as {options.out}")
    if options.plot:
        _write(options.plot, _drawn(result))
        console.note(f"drawn into {options.plot}")
    if options.as_json:
        if comparison is not None:
            content["comparison"] = [
                {"name": r.name, "now": r.now, "then": r.then, "ratio": r.ratio}
                for r in comparison.ratios
            ]
        console.out.write(json_safe(as_text(content)))
    else:
        lines = [*result_lines(result), *(comparison_lines(comparison) if comparison else ())]
        console.out.writelines(safe_line(line) + "\n" for line in lines)
    console.out.flush()


def _check_places(options: BenchOptions) -> None:
    """Refuse what could not be written, before anything is measured."""
    for option, path in (("--out", options.out), ("--plot", options.plot)):
        if path is None:
            continue
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise UsageError(f"{option} {path} cannot be written: name a file in a folder that is")
    if options.plot and options.plot.suffix.lower() != ".png":
        raise UsageError(f"--plot {options.plot} is no picture's name: end it in .png")


def _write(path: Path, content: str | bytes) -> None:
    from q35chat.files import replace_file

    try:
        replace_file(path, content)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}; name another file") from error


def _drawn(result: Result) -> bytes:
    """The time of each step as a PNG file."""
    from io import BytesIO

    from q35chat.bench.plot import latencies, picture

    series = {
        f"behind {point.context} tokens": latencies(result.steps_at(point.context))
        for point in result.decode_points()
    }
    title = f"{result.subject.model}, {result.subject.precision}: milliseconds of each step"
    file = BytesIO()
    picture(series, safe_line(title)).save(file, "PNG")
    return file.getvalue()


def _subject(bundle: Bundle, capacity: int, threads: int | None) -> Subject:
    from q35chat.bench.results import Subject
    from q35chat.runtimes.threads import usable_cpus

    manifest = bundle.manifest
    name = _RUNTIMES.get(manifest.target, "")
    return Subject(
        model=manifest.source.name,
        target=manifest.target,
        precision=manifest.precision,
        capacity=capacity,
        threads=threads or usable_cpus(),
        machine=f"{_processor()}, {usable_cpus()} CPUs, {platform.system()} {platform.machine()}",
        software=f"q35chat {__version__}, Python {platform.python_version()}{_version(name)}",
    )


def _processor() -> str:
    """The name that the processor gives itself, where the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f", {name} {version(name)}" if name else ""
    except PackageNotFoundError:
        return ""
