"""Small checkpoints exported once a session, and their golden prompts as the engine takes them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from q35chat.bundle.bundle import Bundle
from q35chat.vision.rules import PictureRules
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, Precision
from q35export.verify.reference import EncodedPrompt, Patches
from tests.support.checkpoints import make_checkpoint
from tests.support.golden import SAMPLES, Golden, GoldenCase, load
from tests.support.patchify import patchify

CAPACITY = 512


@dataclass(frozen=True, slots=True)
class Exported:
    """A golden file, its checkpoint, and the bundle made of it."""

    golden: Golden
    checkpoint: Path
    bundle: Bundle

    def prompt(self, case: GoldenCase) -> EncodedPrompt:
        """The golden prompt with pictures cut up by q35chat."""
        rules = PictureRules.read(self.bundle.processor_dir / "preprocessor_config.json")
        sample = next(sample for sample in SAMPLES if sample.name == case.sample)
        pictures = [patchify(drawing.image(), rules) for drawing in sample.drawings]
        return EncodedPrompt(
            np.array(case.prompt_ids), tuple(Patches(*picture) for picture in pictures)
        )


def export_checkpoint(
    checkpoint: Path, out: Path, precision: Precision = "fp32", *, calibration: Path | None = None
) -> Bundle:
    """Export for the CPU with `CAPACITY` slots; calibrated where there is a text for it."""
    request = ExportRequest(
        model=str(checkpoint),
        out=out,
        target="cpu",
        precision=precision,
        max_seq_len=CAPACITY,
        calibrate=calibration is not None,
        calibration=calibration,
    )
    export(request, PlainReporter(io.StringIO()))
    return Bundle.open(out)


def export_golden(shape: str, folder: Path, precision: Precision = "fp32") -> Exported:
    """Make the checkpoint behind a golden file and export it into `folder`."""
    golden = load(shape)
    checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=golden.seed)
    return Exported(golden, checkpoint, export_checkpoint(checkpoint, folder / "out", precision))
