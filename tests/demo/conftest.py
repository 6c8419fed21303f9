from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from q35export.request import Precision
from tests.support.exported import export_bundle
from tests.support.shared import made_once
from tools.demo_model.evaluate import Asked

DEMO = Path(__file__).parents[2] / "assets" / "demo-model"


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Precision], Asked]:
    """Exports the demo model in a precision, once for all workers, and opens it."""
    opened: dict[Precision, Asked] = {}

    def open_it(precision: Precision) -> Asked:
        if precision not in opened:
            options = {"target": "cpu", "precision": precision, "calibrate": True}

            def make(folder: Path) -> None:
                export_bundle(DEMO, folder / "bundle", **options)

            bundle = made_once(tmp_path_factory, ("demo", options), make) / "bundle"
            opened[precision] = Asked(bundle, tmp_path_factory.mktemp("asked"), threads=1)
        return opened[precision]

    return open_it
