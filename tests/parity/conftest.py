"""Every small shape live in transformers and exported in FP32, once a session."""

from __future__ import annotations

import pytest

from q35export.verify.candidate import Candidate
from tests.parity.live import Live
from tests.support.checkpoints import SHAPES
from tests.support.exported import export_golden
from tests.support.reference import LiveReference


@pytest.fixture(scope="session", params=SHAPES)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Live:
    exported = export_golden(request.param, tmp_path_factory)
    reference = LiveReference(exported.checkpoint, threads=1)
    return Live(exported, reference, Candidate(exported.bundle, threads=1))
