"""Every small shape, exported once in FP32."""

from __future__ import annotations

import pytest

from q35export.verify.candidate import Candidate
from tests.support.checkpoints import SHAPES
from tests.support.exported import Exported, export_golden
from tests.support.golden import SAMPLES, GoldenCase


@pytest.fixture(scope="session", params=SHAPES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_golden(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def candidate(exported: Exported) -> Candidate:
    return Candidate(exported.bundle, threads=1)


@pytest.fixture(params=[sample.name for sample in SAMPLES])
def case(request: pytest.FixtureRequest, exported: Exported) -> GoldenCase:
    return exported.golden.case(request.param)
