from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain", seed=3, with_mtp=True)


@pytest.fixture
def own_checkpoint(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    """A copy of the module's `exported` bundle that a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "out"))
