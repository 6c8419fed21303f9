"""An environment with the genuine MindSpore Lite 2.0.0, made once a machine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

REQUIREMENT = "mindspore-lite==2.0.0"
WORKER = Path(__file__).with_name("worker.py")


def python37() -> str | None:
    """A Python 3.7 that starts, among pyenv's or on the path (where pyenv's is a stub)."""
    found = [str(path) for path in Path.home().glob(".pyenv/versions/3.7.*/bin/python3.7")]
    found += [path for path in [shutil.which("python3.7")] if path]
    starts = (subprocess.run([path, "-c", ""], capture_output=True, check=False) for path in found)
    return next((path for path, run in zip(found, starts, strict=True) if not run.returncode), None)


def lite_python() -> Path:
    """The interpreter of the environment, which is made if it is not there."""
    folder = Path(tempfile.gettempdir()) / "q35chat-mindspore-lite-2.0.0"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([str(python37()), "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", REQUIREMENT], check=True)
        (folder / "ready").touch()
    return python


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the worker in the environment."""
    command = [str(lite_python()), str(WORKER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
