"""The command line of `q35chat export`: arguments in, a call out. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console


def export(
    model: Annotated[
        str, typer.Argument(help="A checkpoint folder, or a hub id.")
    ] = "Qwen/Qwen3.5-4B",
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle's folder.")] = Path("out"),
    target: Annotated[
        str | None, typer.Option(help="What will run it. Default: the best that is found.")
    ] = None,
    precision: Annotated[
        Literal["fp32", "int8", "int4"] | None,
        typer.Option(help="cpu: how the weights are stored. Default: int4."),
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            help="cpu: how many weights share a scale, 32, 64 or 128. More is faster and smaller, "
            "and less exact. Default: 128 in large matrices, 32 in small ones."
        ),
    ] = None,
    max_seq_len: Annotated[
        int, typer.Option(help="The capacity: tokens of prompt and answer together.")
    ] = 2048,
    component: Annotated[
        Literal["all", "vision", "text", "prefill", "decode"],
        typer.Option(help="Export only a part: vision and text, or vision, prefill and decode."),
    ] = "all",
    mtp: Annotated[
        bool,
        typer.Option(
            "--mtp",
            help="cpu: also the checkpoint's own head for guessing tokens (--speculate mtp). It "
            "makes the bundle larger and guesses cost time, so by default it is left out.",
        ),
    ] = False,
    dtype: Annotated[
        Literal["fp16", "fp32"], typer.Option(help="ascend-310p: numbers outside the kernels.")
    ] = "fp16",
    gears: Annotated[
        str, typer.Option(help="ascend-310p: prompt lengths, such as 32,512. Default: as fit.")
    ] = "",
    image_gears: Annotated[
        str, typer.Option(help="ascend-310p: picture tokens of a picture.")
    ] = "16,64,256",
    fused_prefill: Annotated[
        bool, typer.Option(help="ascend-310p: the prompt through the NPU's own kernel.")
    ] = True,
    fused_decode: Annotated[
        bool, typer.Option(help="ascend-310p: the answer, too; else the KV cache grows.")
    ] = True,
    stateless_prefill: Annotated[
        bool,
        typer.Option("--stateless-prefill", help="ascend-310p: every prompt from its beginning."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Compare with transformers at the end. Default: if torch is installed.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written and what it needs.")
    ] = False,
    source: Annotated[
        Literal["huggingface", "modelscope"], typer.Option(help="The hub of a hub id.")
    ] = "huggingface",
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
    _debug: opt.Debug = False,
) -> int:
    """Turn a Qwen3.5 checkpoint into a bundle that the chat can run."""
    from q35chat.commands.export import export_model  # noqa: PLC0415
    from q35export.request import ExportRequest, parse_gears  # noqa: PLC0415

    request = ExportRequest(
        model=model,
        out=out,
        source=source,
        revision=revision,
        target=target,
        precision=precision,
        max_seq_len=max_seq_len,
        component=component,
        force=force,
        dry_run=dry_run,
        dtype=dtype,
        gears=parse_gears("--gears", gears) if gears else (),
        image_gears=parse_gears("--image-gears", image_gears),
        fused_prefill=fused_prefill,
        fused_decode=fused_decode,
        stateless_prefill=stateless_prefill,
        mtp=mtp,
        block_size=block_size,
    )
    return export_model(request, Console.standard(), verify=verify)
