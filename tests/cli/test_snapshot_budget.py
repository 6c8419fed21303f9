"""`--snapshot-mib` over a real bundle: what an edited turn may reuse."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.events import Finished
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.model import ModelChoice, load_model
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    checkpoint = make_checkpoint(folder / "checkpoint")
    request = ExportRequest(str(checkpoint), folder / "out", precision="int4", max_seq_len=256)
    export(request, PlainReporter(sys.stderr))
    return request.out


def _reused_after_an_edit(bundle: Path, snapshot_mib: int) -> int:
    backend = load_model(ModelChoice(bundle, snapshot_mib=snapshot_mib), threads=1).backend
    turns = [Turn("user", "first question")]
    for text in ("second question", "third question"):
        *_, last = backend.run(turns, SETTINGS, lambda: False)
        assert isinstance(last, Finished)
        turns += [
            Turn("assistant", last.text, token_ids=last.token_ids, finish=last.reason),
            Turn("user", text),
        ]
    edited = [*turns[:-1], replace(turns[-1], text="quite another question")]
    list(backend.run(turns, SETTINGS, lambda: False))
    return backend.plan(edited, SETTINGS).reused_tokens


def test_an_edit_reuses_what_the_budget_could_keep(bundle: Path) -> None:
    assert _reused_after_an_edit(bundle, 0) == 0
    assert _reused_after_an_edit(bundle, 64) > 20
