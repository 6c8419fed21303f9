"""What the base install promises: no PyTorch anywhere, and help that loads next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.imports import ROOT

HEAVY = ("numpy", "onnxruntime", "onnx_ir", "textual", "tokenizers", "torch", "transformers", "PIL")
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from q35chat.cli import main; main()"


def q35chat(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain", seed=2)


def test_a_checkpoint_becomes_an_answer_where_torch_cannot_be_imported(
    checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export = q35chat(
        WITHOUT_TORCH, "export", str(checkpoint), "--out", str(out), "--max-seq-len", "256"
    )
    assert export.returncode == 0, export.stderr
    asked = ("ask", "Hello", "--model-dir", str(out), "--max-new-tokens", "5", "--greedy", "--json")
    answer = q35chat(WITHOUT_TORCH, *asked)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["completion_tokens"] == 5


def test_verify_without_torch_says_in_one_line_how_to_install_it(
    checkpoint: Path, tmp_path: Path
) -> None:
    result = q35chat(WITHOUT_TORCH, "verify", str(tmp_path), "--against", str(checkpoint))
    assert result.returncode == 1
    assert "-m pip install torch" in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["ask", "--help"], ["export", "--help"]])
def test_help_loads_no_heavy_library(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from q35chat.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        f"print('loaded', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    result = q35chat(code, *arguments)
    assert result.returncode == 0, result.stderr
    assert "Usage" in result.stdout
    assert result.stdout.rstrip().endswith("loaded []")
