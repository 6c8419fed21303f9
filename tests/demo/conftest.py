from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, Precision
from tests.demo.answers import Asked

DEMO = Path(__file__).parents[2] / "assets" / "demo-model"


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Precision], Asked]:
    """Exports the demo model in a precision (once a session) and opens it."""
    opened: dict[Precision, Asked] = {}

    def open_it(precision: Precision) -> Asked:
        if precision not in opened:
            folder = tmp_path_factory.mktemp(f"demo-{precision}")
            request = ExportRequest(
                model=str(DEMO), out=folder / "bundle", target="cpu", precision=precision
            )
            export(request, PlainReporter(sys.stderr))
            opened[precision] = Asked(folder / "bundle", folder)
        return opened[precision]

    return open_it
