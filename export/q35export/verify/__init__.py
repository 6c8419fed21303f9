"""How far a bundle lies from transformers' own model: tensors, states and greedy tokens.

The one part of the exporter that runs bundles; needs the extra `verify` (torch).
"""

from __future__ import annotations

from q35export.verify.compare import verify
from q35export.verify.report import Report
from q35export.verify.requirements import NotComparableError

__all__ = ["NotComparableError", "Report", "verify"]
