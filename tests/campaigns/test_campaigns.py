"""The campaigns in a short form, with a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.bundle.demo import demo_checkpoint
from tests.campaigns import damages, graphs, kills, server
from tests.support.exported import export_bundle, random_bundle
from tests.support.shared import made_once


@pytest.mark.parametrize("kind", damages.KINDS)
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    count = 6 if kind in {"tokenizer", "checkpoint", "HTTP"} else 25
    assert damages.run(count, 7, tmp_path, (kind,)) == []


def test_a_wrong_graph_is_an_answer_or_one_line(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert graphs.run(8, 7, random_bundle(tmp_path_factory), tmp_path) == []


def test_nothing_is_lost_or_left_by_a_kill(tmp_path: Path) -> None:
    assert kills.run(4, 7, tmp_path) == []


def test_a_server_answers_as_ask_does_while_clients_go_away(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def make(folder: Path) -> None:
        export_bundle(demo_checkpoint(), folder / "bundle", target="cpu", precision="fp32")

    bundle = made_once(tmp_path_factory, "the demo for a server", make) / "bundle"
    assert server.run(16, 7, bundle, questions=2) == []
