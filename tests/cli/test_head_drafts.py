"""The checkpoint's own head for drafts, from the command line to the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from q35chat.cli import run
from tests.support.checkpoints import make_checkpoint
from tests.support.right_head import make_head_right

ASK = ("ask", "--json", "--greedy", "--no-save", "--max-new-tokens", "40")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "even", seed=2, with_mtp=True)
    make_head_right(folder)
    return folder


@pytest.fixture(scope="module", params=["fp32", "int8", "int4"])
def bundle(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp(request.param) / "out"
    options = ("--mtp", "--precision", request.param, "--max-seq-len", "256", "--no-verify")
    assert run(["export", str(checkpoint), "--out", str(out), "--target", "cpu", *options]) == 0
    return out


def ask(bundle: Path, capture: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capture.readouterr()
    assert run([*ASK, "-m", str(bundle), *options, "Hello"]) == 0
    answer: dict[str, Any] = json.loads(capture.readouterr().out)
    return answer


def test_a_head_that_is_right_saves_steps_and_changes_nothing(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ask(bundle, capsys, "--speculate", "off")
    drafted = ask(bundle, capsys, "--speculate", "mtp")

    assert drafted["token_ids"] == plain["token_ids"]
    assert len(set(plain["token_ids"])) > 4
    assert plain["drafted_tokens"] == 0
    assert drafted["accepted_tokens"] > 40 / 3


def test_a_bundle_without_the_head_tells_how_to_get_it(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["export", str(checkpoint), "--out", str(out), "--target", "cpu", "--no-verify"]
    assert run([*arguments, "--max-seq-len", "64"]) == 0
    capsys.readouterr()

    assert run([*ASK, "-m", str(out), "--speculate", "mtp", "Hello"]) == 1
    said = capsys.readouterr().err
    assert "export it with --mtp, or use --speculate auto" in said


def test_the_help_of_export_says_why_the_head_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run(["export", "--help"])

    assert "by default it is left out" in " ".join(capsys.readouterr().out.split())
