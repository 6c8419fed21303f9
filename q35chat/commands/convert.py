"""`q35chat convert`: the graphs of a bundle made ready for the NPU, or the commands to do so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.errors import UsageError

if TYPE_CHECKING:
    from q35chat.ascend.kernel_trial import TrialPlace

NO_CONVERTER = 3


def convert(
    bundle: Annotated[Path, typer.Argument(parser=opt.path, help="The bundle's folder or name.")],
    converter: Annotated[
        str | None,
        typer.Option(help="The converter_lite to use. Default: that of PATH or MSLITE_HOME."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            help="The python3 that CANN compiles with. Default: the first on PATH that is not ours."
        ),
    ] = None,
    precision_mode: Annotated[
        Literal["force_fp32", "must_keep_origin_dtype", "allow_mix_precision"],
        typer.Option(help="How CANN computes; another than before converts again."),
    ] = "force_fp32",
    mixed_list: Annotated[
        Path | None,
        typer.Option(parser=opt.path, help="For allow_mix_precision: a JSON file of operators."),
    ] = None,
    plugin_custom_ops: Annotated[
        str,
        typer.Option(help="MindSpore Lite's fused operators to use: All, BatchMatmulToMatmul, ..."),
    ] = "",
    kernels: Annotated[
        str | None,
        typer.Option(
            help="How kernels are to be written. Default: what doctor --operators found here."
        ),
    ] = None,
    drop_onnx: Annotated[
        bool, typer.Option("--drop-onnx", help="Delete the ONNX files of converted graphs.")
    ] = False,
    _debug: opt.Debug = False,
) -> int:
    """Make a bundle for ascend-310p ready for its NPU, or print the commands to do it there."""
    from q35chat.ascend.diagnosis import Places, cann_version
    from q35chat.ascend.kernel_trial import TrialPlace
    from q35chat.ascend.memory import estimate, graph_sizes
    from q35chat.bundle.bundle import Bundle
    from q35chat.bundle.library import folder_of
    from q35chat.commands.next_command import chat_command
    from q35chat.text import quoted
    from q35export.ascend.converter import find_converter
    from q35export.ascend.converter_config import CompilerSettings
    from q35export.ascend.forms import KernelForms
    from q35export.ascend.mindir import convert as convert_graphs
    from q35export.progress import reporter_for

    bundle = folder_of(bundle)
    if mixed_list is not None and precision_mode != "allow_mix_precision":
        raise UsageError("--mixed-list is read by --precision-mode allow_mix_precision only")
    if mixed_list is not None and not mixed_list.is_file():
        raise UsageError(f"--mixed-list {mixed_list} is no file")
    if not re.fullmatch(r"(\w+(,\w+)*)?", plugin_custom_ops, re.ASCII):
        raise UsageError("--plugin-custom-ops takes names with commas between them")
    settings = CompilerSettings(precision_mode, mixed_list, plugin_custom_ops)
    forms = KernelForms.parse(kernels or "")
    console, places = Console.standard(), Places.here()
    tool = find_converter(converter, python, cann_version(places))
    for line in estimate(graph_sizes(Bundle.open(bundle, check="names"))):
        console.note(line)
    if tool is not None:
        console.note(f"converting with {tool.name}")
    if tool is not None and kernels is None:
        place = TrialPlace.here(places.environment, tool.cann, tool.name)
        forms = KernelForms.parse(_found_here(place, console))
    with reporter_for(console.err) as reporter:
        result = convert_graphs(bundle, tool, reporter, settings, forms=forms, drop_onnx=drop_onnx)
    if result.status == "no-converter":
        console.note(
            "no converter here: copy the bundle to the NPU host, source CANN's set_env.sh there, "
            "set ASCEND_CUSTOM_OPP_PATH, and run these; then this command again, to record what "
            "they made"
        )
        console.show(f"cd {quoted(str(bundle.resolve()))}")
        console.show("\n".join(result.commands))
        console.out.flush()
        return NO_CONVERTER
    if result.status == "up-to-date":
        console.note(f"{bundle} is converted already")
    console.note(f"chat with it: {chat_command(bundle)}")
    return 0


def _found_here(place: TrialPlace, console: Console) -> str:
    """The ways of the kernels that a trial has found at `place`, said in one line; empty where
    there was none, or with something else."""
    from q35chat.ascend.kernel_trial import KernelTrial

    trial = KernelTrial.kept()
    if trial is None or trial.place.host != place.host:
        return ""
    again = "`doctor --operators` tries them again"
    if trial.place != place:
        console.note(f"the kernels were tried with another CANN, package or converter: {again}")
    elif trial.kernels is None:
        console.note(f"a kernel worked in no way, as {trial.report} says: {again}")
    else:
        ways = trial.kernels or "as exported"
        console.note(f"kernels {ways}, as {trial.report} says; --kernels gives others")
        return trial.kernels
    return ""
