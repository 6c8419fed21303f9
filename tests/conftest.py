from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the conversations of whoever runs it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
