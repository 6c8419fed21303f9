from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from q35export.request import Precision
from tools.demo_model.evaluate import Asked, exported

DEMO = Path(__file__).parents[2] / "assets" / "demo-model"


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Precision], Asked]:
    """Exports the demo model in a precision (once a session) and opens it."""
    opened: dict[Precision, Asked] = {}

    def open_it(precision: Precision) -> Asked:
        if precision not in opened:
            folder = tmp_path_factory.mktemp(f"demo-{precision}")
            opened[precision] = exported(DEMO, precision, folder)
        return opened[precision]

    return open_it
