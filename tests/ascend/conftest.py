from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from q35export.graphs.ascend import AscendOptions
from tests.support.ascend import Exported, export_ascend
from tests.support.checkpoints import make_checkpoint

Export = Callable[..., Exported]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Graphs of a shape with options, built once a session; capacity 64 unless it is given."""
    made: dict[str, Exported] = {}
    checkpoints: dict[str, Path] = {}

    def export(shape: str, **options: Any) -> Exported:
        key = f"{shape} {sorted(options.items())}"
        if key not in made:
            if shape not in checkpoints:
                folder = tmp_path_factory.mktemp("checkpoint")
                checkpoints[shape] = make_checkpoint(folder, shape, seed=5)
            settings = AscendOptions(**{"capacity": 64, "image_gears": (4, 16), **options})
            made[key] = export_ascend(
                checkpoints[shape], tmp_path_factory.mktemp("graphs"), settings
            )
        return made[key]

    return export
