"""The command line of `q35chat bench`: arguments in, a call out. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.commands.npu import NpuOptions


def bench(
    model_dir: opt.ModelDir = None,
    prompt: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a prefill. Default: 512, if they fit.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Decode steps of a round. Default: 128, if they fit.")
    ] = None,
    context: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Tokens that are there before the steps; repeat for more. "
            "Default: 100, half the capacity, and nearly all of it.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Rounds of everything.")] = 5,
    threads: opt.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the result as JSON.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Print ratios to a result that was saved.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the time of each step into this PNG file.")
    ] = None,
    device_id: opt.DeviceId = 0,
    residency: opt.Residency = "auto",
    host_states: opt.HostStates = False,
    _debug: opt.Debug = False,
) -> int:
    """Measure speed and memory of a bundle; Ctrl+C shows what was measured so far."""
    from q35chat.commands.bench import BenchOptions, run_bench  # noqa: PLC0415

    asked = BenchOptions(
        model_dir=model_dir,
        prompt=prompt,
        tokens=tokens,
        contexts=tuple(context or ()),
        repeat=repeat,
        threads=threads,
        as_json=as_json,
        out=out,
        compare=compare,
        plot=plot,
        npu=NpuOptions(device_id, residency, host_states),
    )
    return run_bench(asked, Console.standard())
