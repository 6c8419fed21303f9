"""What the parity tests of one shape share."""

from __future__ import annotations

from dataclasses import dataclass

from q35export.verify.candidate import Candidate
from q35export.verify.reference import Reference
from tests.support.exported import Exported
from tests.support.golden import Golden


@dataclass(frozen=True, slots=True)
class Live:
    """One checkpoint: exported, in transformers with its answers, and in the engine."""

    exported: Exported
    reference: Reference
    answers: Golden
    candidate: Candidate
