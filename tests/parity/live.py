"""What the parity tests of one shape share."""

from __future__ import annotations

from dataclasses import dataclass

from q35export.verify.candidate import Candidate
from tests.support.exported import Exported
from tests.support.reference import LiveReference


@dataclass(frozen=True, slots=True)
class Live:
    """One checkpoint: exported, in transformers, and in the engine."""

    exported: Exported
    reference: LiveReference
    candidate: Candidate

    def tokens(self, sample: str) -> tuple[int, ...]:
        """What `generate` answers; `test_goldens` proves that it still does."""
        return self.exported.golden.case(sample).tokens
