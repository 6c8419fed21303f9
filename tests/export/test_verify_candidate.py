"""What `verify` reads out of a bundle, without PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from q35chat.runtimes.onnxruntime import OrtSession
from q35export.verify.candidate import Candidate
from q35export.verify.reference import EncodedPrompt
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_checkpoint


def test_states_that_the_graph_writes_over_are_read_whole_and_caches_up_to_the_prompt(
    tmp_path: Path,
) -> None:
    bundle = export_checkpoint(make_checkpoint(tmp_path / "checkpoint"), tmp_path / "out")
    session = OrtSession(bundle.graph_path("text"), threads=1)
    declared = {
        spec.name.removeprefix("past_"): spec.shape
        for spec in session.inputs
        if spec.name.startswith("past_")
    }
    candidate = Candidate(bundle, threads=1)
    try:
        states = candidate.prefill(EncodedPrompt(np.array([3, 5, 7]), ())).states
    finally:
        candidate.close()

    assert states.keys() == declared.keys()
    for name, state in states.items():
        whole = declared[name]
        cache = name.startswith(("key", "value"))
        assert state.shape == ((*whole[:-2], 3, whole[-1]) if cache else whole)
