"""`q35chat verify`: how far a bundle lies from transformers' own model, as a table."""

from __future__ import annotations

from pathlib import Path

from q35chat.commands.console import Console


def verify_bundle(bundle: Path, against: str, console: Console) -> int:
    """Compare `bundle` with the checkpoint `against`, a folder or a hub id; the exit code.

    Raises Q35Error, among others where torch is not installed.
    """
    from q35export.request import ExportRequest  # noqa: PLC0415
    from q35export.source import resolve  # noqa: PLC0415
    from q35export.verify.reference import require_torch  # noqa: PLC0415

    require_torch()
    checkpoint = resolve(ExportRequest(model=against), console.note)
    return compare(bundle, checkpoint.folder, console)


def compare(bundle: Path, checkpoint: Path, console: Console) -> int:
    """Print the table; 1 if a limit is broken. Raises Q35Error."""
    from q35export.verify import verify  # noqa: PLC0415

    report = verify(bundle, checkpoint, note=console.note)
    console.show(report.table())
    console.out.flush()
    return 0 if report.passed else 1
