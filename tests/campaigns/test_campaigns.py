"""The campaigns in a short form, with a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns import damages, kills


@pytest.mark.parametrize("kind", damages.KINDS)
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    assert damages.run(6 if kind in {"tokenizer", "checkpoint"} else 25, 7, tmp_path, (kind,)) == []


def test_nothing_is_lost_or_left_by_a_kill(tmp_path: Path) -> None:
    assert kills.run(4, 7, tmp_path) == []
