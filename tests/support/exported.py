"""Small checkpoints exported once a session, and their golden prompts as the engine takes them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from q35chat.bundle.bundle import Bundle
from q35chat.engine.decoder import extend
from q35chat.vision.rules import PictureRules
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, Precision
from q35export.verify.candidate import Candidate
from q35export.verify.reference import EncodedPrompt, Greedy, Patches
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
    checkpoint: Path, out: Path, precision: Precision = "fp32", *, calibrate: bool = False
) -> Bundle:
    """Export for the CPU with `CAPACITY` slots."""
    request = ExportRequest(
        model=str(checkpoint),
        out=out,
        target="cpu",
        precision=precision,
        max_seq_len=CAPACITY,
        calibrate=calibrate,
    )
    export(request, PlainReporter(io.StringIO()))
    return Bundle.open(out)


def export_golden(shape: str, folder: Path, precision: Precision = "fp32") -> Exported:
    """Make the checkpoint behind a golden file and export it into `folder`."""
    golden = load(shape)
    checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=golden.seed)
    return Exported(golden, checkpoint, export_checkpoint(checkpoint, folder / "out", precision))


def greedy_tokens(candidate: Candidate, prompt: EncodedPrompt, count: int) -> Greedy:
    """Exactly `count` tokens of a decoder of its own, stop tokens included."""
    decoder = candidate.new_decoder()
    rows = [
        extend(decoder, prompt.ids, candidate.positions(prompt), candidate.embeds(prompt)).copy()
    ]
    while len(rows) < count:
        rows.append(decoder.step(int(rows[-1].argmax())).copy())
    return Greedy(np.array([row.argmax() for row in rows]), np.stack(rows))
