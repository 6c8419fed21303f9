"""The command lines of `q35chat verify`, `convert` and `doctor`: arguments in, a call out.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.errors import UsageError

_OF_THE_TABLE = {"as_json": "--json", "everything": "--all"}
_OF_THE_REPORT = {"out": "--report", "device_id": "--device-id"}


def verify(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    against: Annotated[
        str, typer.Option("--against", help="The checkpoint it was made from: a folder or hub id.")
    ],
    _debug: opt.Debug = False,
) -> int:
    """Compare a bundle with transformers' own model (needs the extra: verify)."""
    from q35chat.commands.verify import verify_bundle  # noqa: PLC0415

    return verify_bundle(bundle, against, Console.standard())


def convert(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    converter: Annotated[
        str | None,
        typer.Option(help="The converter_lite to use. Default: that of PATH or MSLITE_HOME."),
    ] = None,
    drop_onnx: Annotated[
        bool, typer.Option("--drop-onnx", help="Delete the ONNX files of converted graphs.")
    ] = False,
    _debug: opt.Debug = False,
) -> int:
    """Make a bundle for ascend-310p ready for its NPU, or print the commands to do it there."""
    from q35chat.commands.convert import convert_bundle  # noqa: PLC0415

    console = Console.standard()
    return convert_bundle(bundle, console, converter=converter, drop_onnx=drop_onnx)


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
        Path | None, typer.Option("--report", help="The file of --operators' report.")
    ] = None,
    device_id: opt.DeviceId = 0,
    _debug: opt.Debug = False,
) -> int:
    """Show what is here and what is missing; 1 where the chosen bundle cannot run."""
    from q35chat.commands.doctor import diagnose, run_doctor  # noqa: PLC0415

    _check_doctor(opt.given_options(context), operators=operators)
    console = Console.standard()
    if not operators:
        return run_doctor(model_dir, console, as_json=as_json, everything=everything)
    from q35chat.commands.operators import try_operators  # noqa: PLC0415

    groups = diagnose(model_dir, console)
    return try_operators(console, groups, device_id=device_id, report=out)


def _check_doctor(given: Collection[str], *, operators: bool) -> None:
    """Refuse options that only the other kind of diagnosis reads. Raises UsageError."""
    for name, option in (_OF_THE_TABLE if operators else _OF_THE_REPORT).items():
        if name in given and operators:
            raise UsageError(f"--operators writes everything as one report; drop {option} or it")
        if name in given:
            raise UsageError(f"{option} is for --operators; add that, or leave {option} out")
