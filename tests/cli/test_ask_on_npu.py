"""The command line over a converted bundle, in a process that finds the stand-in installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE_S
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import converted_bundle
from tests.support.imports import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a converted bundle, and the stand-in as a package for children."""
    folder = tmp_path_factory.mktemp("npu")
    model = make_checkpoint(folder / "checkpoint", seed=5)
    sizes = {"max_seq_len": 128, "gears": (64,), "image_gears": (4,)}
    converted_bundle(model, folder / "out", **sizes)
    package = folder / "packages" / "mindspore_lite"
    package.mkdir(parents=True)
    double = "from tests.doubles.mindspore_lite import"
    text = f"{double} *\n{double} __version__\n"
    (package / "__init__.py").write_text(text, encoding="utf-8")
    return folder


def ask(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    paths = (folder / "packages", ROOT, ROOT / "export")
    environment = os.environ | {
        "PYTHONPATH": ":".join(map(str, paths)),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    line = [sys.executable, "-m", "q35chat", "ask", "--no-save", "--greedy", "-m",
            str(folder / "out"), "--max-new-tokens", "4", "--stats", *options, "Hello"]  # fmt: skip
    return subprocess.run(
        line, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE_S
    )


def test_an_answer_with_its_route_and_nothing_native(installed: Path) -> None:
    kept, moved = ask(installed), ask(installed, "--host-state-roundtrip", "--residency", "swap")

    assert (kept.returncode, moved.returncode) == (0, 0), kept.stderr
    assert kept.stdout == moved.stdout
    route = next(line for line in kept.stderr.splitlines() if line.startswith("route"))
    assert "prefill 64" in route
    assert "libnuma" not in kept.stdout + kept.stderr
    assert "operator path not found" not in kept.stderr
    logs = list((installed / "state").rglob("mindspore-lite-*.log"))
    assert len(logs) == 2
    assert all("Open libnuma.so failed!" in log.read_text(encoding="utf-8") for log in logs)


def test_a_wrong_device_is_refused_by_the_command_line(installed: Path) -> None:
    assert ask(installed, "--device-id", "-1").returncode == 2
