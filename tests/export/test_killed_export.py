from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.errors import ExportError
from q35export.pipeline import export
from tests.export.bundles import names, request_for
from tests.export.killed_export import FORKS, start
from tests.export.recorder import Recorder

OLD, NEW = 32, 48
MOMENTS = ["begin vision", "inside vision", "begin text", "inside text", "end text"]
EXCHANGE = ["before rename 1", "before rename 2", "while removing"]


@pytest.fixture(scope="module")
def old_bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("old") / "out"
    run(checkpoint, out, OLD)
    return out


def run(checkpoint: Path, out: Path, capacity: int, *, force: bool = False) -> None:
    export(
        request_for(checkpoint, out, precision="fp32", max_seq_len=capacity, force=force),
        Recorder(),
    )


def killed(number: int, moment: str, checkpoint: Path, out: Path) -> int | None:
    process = start(number, moment, checkpoint, out)
    process.join()
    return process.exitcode


@pytest.mark.parametrize("moment", [*MOMENTS, "before rename 1"])
def test_killed_before_there_was_a_bundle_there_is_none_and_the_next_run_makes_it(
    checkpoint: Path, tmp_path: Path, moment: str
) -> None:
    out = tmp_path / "out"
    assert killed(signal.SIGKILL, moment, checkpoint, out) == -signal.SIGKILL
    assert not out.exists()
    run(checkpoint, out, NEW)
    assert Bundle.open(out, check="full").manifest.capacity == NEW
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("moment", [*MOMENTS, *EXCHANGE])
def test_killed_while_a_bundle_was_replaced_there_is_the_old_or_the_new_and_the_next_run_is_right(
    checkpoint: Path, old_bundle: Path, tmp_path: Path, moment: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(old_bundle, out)
    assert killed(signal.SIGKILL, moment, checkpoint, out) == -signal.SIGKILL
    if is_bundle(out):
        found = Bundle.open(out, check="full").manifest.capacity
        assert found == (NEW if moment == "while removing" else OLD)
    else:
        assert moment == "before rename 2"
        assert not out.exists()
    standing = NEW if moment == "while removing" else OLD
    run(checkpoint, out, standing)
    assert Bundle.open(out, check="full").manifest.capacity == standing
    run(checkpoint, out, NEW, force=True)
    assert Bundle.open(out, check="full").manifest.capacity == NEW
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("moment", ["inside text", *EXCHANGE])
def test_sigterm_cleans_up_and_leaves_a_whole_bundle(
    checkpoint: Path, old_bundle: Path, tmp_path: Path, moment: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(old_bundle, out)
    assert killed(signal.SIGTERM, moment, checkpoint, out) == 128 + signal.SIGTERM
    assert Bundle.open(out, check="full").manifest.capacity in {OLD, NEW}
    run(checkpoint, out, NEW, force=True)
    assert names(tmp_path) == ["out"]


def test_ctrl_c_leaves_nothing_beside_the_old_bundle(
    checkpoint: Path, old_bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(old_bundle, out)
    killed(signal.SIGINT, "inside text", checkpoint, out)
    assert Bundle.open(out, check="full").manifest.capacity == OLD
    assert names(tmp_path) == ["out"]


def test_an_export_at_work_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ours, theirs = FORKS.Pipe()
    process = start(theirs, "inside text", checkpoint, out)
    assert ours.recv() == "waiting"
    with pytest.raises(ExportError, match=rf"an export \(process {process.pid}\) is writing"):
        run(checkpoint, out, OLD)
    ours.send("go on")
    process.join()
    assert process.exitcode == 0
    assert Bundle.open(out, check="full").manifest.capacity == NEW
