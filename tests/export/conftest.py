from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from q35export.pipeline import export
from tests.export.bundles import request_for
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain", seed=3, with_mtp=True)


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    export(request_for(checkpoint, out), Recorder())
    return out


@pytest.fixture
def own_checkpoint(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    """A copy of the module's `exported` bundle that a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "out"))
