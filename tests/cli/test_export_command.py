from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from q35chat.bundle import is_bundle
from q35chat.commands import export as command
from q35chat.commands.export import export_model
from q35chat.errors import UsageError
from q35export.request import ExportRequest
from q35export.verify import NotEnoughMemoryError
from tests.cli.scripted import recorded
from tests.support.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain")


def request(checkpoint: Path, out: Path, **more: Any) -> ExportRequest:
    return ExportRequest(str(checkpoint), out, precision="fp32", max_seq_len=64, **more)


def test_a_dry_run_prints_files_size_and_memory_and_writes_nothing(
    checkpoint: Path, tmp_path: Path
) -> None:
    seen = recorded()
    out = tmp_path / "out"
    assert export_model(request(checkpoint, out, dry_run=True), seen.console, verify=None) == 0
    lines = seen.out.getvalue().splitlines()
    assert any(line.startswith("text/model.onnx ") for line in lines)
    assert any(line.startswith("to write: ") for line in lines)
    assert lines[-1].startswith("memory for a chat: ")
    assert not out.exists()


def test_progress_goes_to_stderr_and_a_second_run_is_done_at_once(
    checkpoint: Path, tmp_path: Path
) -> None:
    first, second = recorded(), recorded()
    out = tmp_path / "out"
    assert export_model(request(checkpoint, out), first.console, verify=False) == 0
    assert is_bundle(out)
    assert first.out.getvalue() == ""
    assert "text: done" in first.err.getvalue()
    assert f"chat with it: q35chat --model-dir {out}" in first.err.getvalue()
    assert export_model(request(checkpoint, out), second.console, verify=False) == 0
    assert "is up to date" in second.err.getvalue()
    assert "text: done" not in second.err.getvalue()


def test_asking_for_the_comparison_without_torch_is_refused_before_the_export(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'q35chat\[verify\]'"):
        export_model(request(checkpoint, tmp_path / "out"), recorded().console, verify=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("verify", "torch", "compared"), [
    (None, True, True),
    (None, False, False),
    (True, True, True),
    (False, True, False),
])  # fmt: skip
def test_an_export_ends_with_the_comparison_where_torch_is_there(
    verify: bool | None,
    torch: bool,
    compared: bool,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Path, Path]] = []

    def compare(bundle: Path, folder: Path, *_: object) -> int:
        calls.append((bundle, folder))
        return 1

    monkeypatch.setattr(command, "find_spec", lambda name: object() if torch else None)
    monkeypatch.setattr(command, "compare", compare)
    out = tmp_path / "out"
    code = export_model(request(checkpoint, out), recorded().console, verify=verify)
    assert calls == ([(out, checkpoint)] if compared else [])
    assert code == (1 if compared else 0)


def test_half_a_bundle_is_not_compared(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object) -> int:
        raise AssertionError("half a bundle was compared")

    monkeypatch.setattr(command, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "compare", compare)
    half = request(checkpoint, tmp_path / "out", component="text")
    assert export_model(half, recorded().console, verify=None) == 0


def test_a_comparison_that_does_not_fit_is_left_out_unless_asked_for(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object) -> int:
        raise NotEnoughMemoryError("comparing needs 40.0 GB")

    monkeypatch.setattr(command, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "compare", compare)
    seen = recorded()
    assert export_model(request(checkpoint, tmp_path / "out"), seen.console, verify=None) == 0
    assert "not compared with the checkpoint: comparing needs 40.0 GB" in seen.err.getvalue()
    with pytest.raises(NotEnoughMemoryError):
        export_model(request(checkpoint, tmp_path / "other"), recorded().console, verify=True)
