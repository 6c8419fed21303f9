from __future__ import annotations

import json
from pathlib import Path

from tests.ascend.nodes import GOLDEN, KINDS, dump, graphs_of


def test_every_kind_of_graph_says_what_its_golden_file_says(tmp_path: Path) -> None:
    graphs = graphs_of(tmp_path)
    assert {file.stem for file in GOLDEN.glob("*.json")} == KINDS.keys()
    for kind, graph in graphs.items():
        golden = json.loads((GOLDEN / f"{kind}.json").read_text(encoding="utf-8"))
        assert json.loads(json.dumps(dump(graph))) == golden, kind
