"""`q35chat verify`: how far a bundle lies from transformers' own model, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console


def verify(
    bundle: Annotated[Path, typer.Argument(parser=opt.path, help="The bundle's folder or name.")],
    against: Annotated[
        str, typer.Option("--against", help="The checkpoint it was made from: a folder or hub id.")
    ],
    _debug: opt.Debug = False,
) -> int:
    """Compare a bundle with transformers' own model (needs the extra: verify)."""
    from q35chat.bundle.library import folder_of
    from q35export.request import ExportRequest
    from q35export.source import resolve
    from q35export.verify.reference import require_torch

    require_torch()
    console = Console.standard()
    checkpoint = resolve(ExportRequest(model=against), console.note)
    return compare(folder_of(bundle), checkpoint.folder, console)


def compare(bundle: Path, checkpoint: Path, console: Console) -> int:
    """Print the table; 1 if a limit is broken. Raises Q35Error."""
    from q35chat.bundle.bundle import Bundle
    from q35export.verify import verify as measure

    report = measure(bundle, checkpoint, note=console.note)
    console.show(report.table())
    if kept := Bundle.open(bundle, check="names").manifest.kept:
        console.show(f"on the text that was held out, {report.precision} {kept}")
    console.out.flush()
    return 0 if report.passed else 1
