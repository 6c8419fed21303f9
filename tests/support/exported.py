"""Small checkpoints exported once a session, and their golden prompts as the engine takes them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.engine.decoder import extend
from q35chat.vision.rules import PictureRules
from q35export.ascend.converter import find_converter
from q35export.ascend.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, Precision
from q35export.verify.candidate import Candidate
from q35export.verify.reference import EncodedPrompt, GreedyTokens, Patches
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter
from tests.support.golden import SAMPLES, Golden, GoldenCase, load
from tests.support.patchify import patchify
from tests.support.shared import made_once

CAPACITY = 512


@dataclass(frozen=True, slots=True)
class Exported:
    """A golden file, its checkpoint, and the bundle made of it."""

    golden: Golden
    checkpoint: Path
    bundle: Bundle

    def prompt(self, case: GoldenCase) -> EncodedPrompt:
        """The golden prompt with pictures cut up by q35chat."""
        rules = PictureRules.read(self.bundle.processor_dir)
        sample = next(sample for sample in SAMPLES if sample.name == case.sample)
        pictures = [patchify(drawing.image(), rules) for drawing in sample.drawings]
        return EncodedPrompt(
            np.array(case.prompt_ids), tuple(Patches(*picture) for picture in pictures)
        )


def export_bundle(checkpoint: Path, out: Path, **options: Any) -> Path:
    """Export into `out`, not calibrated unless `options` say so, and tell nobody."""
    if options.get("target") != "ascend-310p":
        options = {"calibrate": False} | options
    export(ExportRequest(str(checkpoint), out, **options), PlainReporter(io.StringIO()))
    return out


def random_bundle(folders: pytest.TempPathFactory, **options: Any) -> Path:
    """A bundle of the small model of seed 5, made once and only read; `checkpoint` is beside it."""

    def make(folder: Path) -> None:
        export_bundle(make_checkpoint(folder / "checkpoint", seed=5), folder / "out", **options)

    return made_once(folders, ("random", options), make) / "out"


def converted_bundle(checkpoint: Path, out: Path, **options: Any) -> Path:
    """A bundle for the NPU, converted by the converter's stand-in."""
    export_bundle(checkpoint, out, target="ascend-310p", **options)
    with pytest.MonkeyPatch.context() as patch:
        install_converter(out.parent / "bin", patch)
        convert(out, find_converter(), PlainReporter(io.StringIO()))
    return out


def export_checkpoint(
    checkpoint: Path, out: Path, precision: Precision = "fp32", **options: Any
) -> Bundle:
    """Export for the CPU, with `CAPACITY` slots unless `options` say something else."""
    given = {"target": "cpu", "precision": precision, "max_seq_len": CAPACITY} | options
    return Bundle.open(export_bundle(checkpoint, out, **given))


def export_golden(
    shape: str, folders: pytest.TempPathFactory, precision: Precision = "fp32"
) -> Exported:
    """The checkpoint behind a golden file and its bundle, made once and only read."""
    golden = load(shape)

    def make(folder: Path) -> None:
        checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=golden.seed)
        export_checkpoint(checkpoint, folder / "out", precision)

    folder = made_once(folders, ("golden", shape, precision), make)
    return Exported(golden, folder / "checkpoint", Bundle.open(folder / "out"))


def greedy_tokens(candidate: Candidate, prompt: EncodedPrompt, count: int) -> GreedyTokens:
    """Exactly `count` tokens of a decoder of its own, stop tokens included."""
    decoder = candidate.new_decoder()
    rows = [
        extend(decoder, prompt.ids, candidate.positions(prompt), candidate.embeds(prompt)).copy()
    ]
    while len(rows) < count:
        rows.append(decoder.step(int(rows[-1].argmax())).copy())
    return GreedyTokens(np.array([row.argmax() for row in rows]), np.stack(rows))
