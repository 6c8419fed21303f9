"""What the parity tests of one shape share."""

from __future__ import annotations

from dataclasses import dataclass

from q35export.verify.candidate import Candidate
from tests.support.exported import Exported
from tests.support.golden import Golden
from tests.support.reference import LiveReference


@dataclass(frozen=True, slots=True)
class Live:
    """One checkpoint: exported, in transformers with its answers, and in the engine."""

    exported: Exported
    reference: LiveReference
    answers: Golden
    candidate: Candidate
