from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from q35export.pipeline import export
from tests.export.bundles import request_for
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint
from tests.support.shared import made_once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        checkpoint = make_checkpoint(folder / "checkpoint", "plain", seed=3, with_mtp=True)
        export(request_for(checkpoint, folder / "out"), Recorder())

    return made_once(tmp_path_factory, "export", make)


@pytest.fixture(scope="session")
def checkpoint(made: Path) -> Path:
    return made / "checkpoint"


@pytest.fixture(scope="session")
def exported(made: Path) -> Path:
    return made / "out"


@pytest.fixture
def own_checkpoint(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    """A copy of the `exported` bundle that a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "out"))
