from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import TextIO

import pytest

from q35chat.bundle import demo
from q35chat.bundle.bundle import MANIFEST_NAME, is_bundle
from q35chat.errors import BundleError, ExportError


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "demo-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(demo, "_ASSETS", (tmp_path / "nowhere", tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def _export(_: Path, out: Path) -> None:
    out.mkdir()
    (out / MANIFEST_NAME).write_text("{}", encoding="utf-8")


def test_the_demo_is_exported_once(checkpoint: Path) -> None:
    calls: list[Path] = []

    def export(source: Path, out: Path) -> None:
        calls.append(source)
        _export(source, out)

    first = demo.ensure_demo(export)
    assert demo.ensure_demo(export) == first
    assert is_bundle(first)
    assert calls == [checkpoint]


def test_another_checkpoint_gets_another_bundle(checkpoint: Path) -> None:
    before = demo.demo_bundle_path(checkpoint)
    (checkpoint / "config.json").write_text("[]", encoding="utf-8")
    assert demo.demo_bundle_path(checkpoint) != before


def test_processes_that_start_at_once_export_once(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    entered, refused, release = (threading.Event() for _ in range(3))
    lock = fcntl.flock

    def flock(file: TextIO, how: int) -> None:
        try:
            lock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            refused.set()
            lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)

    def slow(source: Path, out: Path) -> None:
        calls.append(out)
        entered.set()
        assert release.wait(30)
        _export(source, out)

    first = threading.Thread(target=demo.ensure_demo, args=(slow,), daemon=True)
    second = threading.Thread(target=demo.ensure_demo, args=(slow,), daemon=True)
    first.start()
    assert entered.wait(30)
    second.start()
    assert refused.wait(30), "the second did not have to wait for the first"
    release.set()
    for thread in (first, second):
        thread.join(30)
        assert not thread.is_alive()
    assert len(calls) == 1


def test_an_installation_without_the_demo_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_ASSETS", (tmp_path,))
    assert demo.sample_pictures() is None
    with pytest.raises(BundleError, match="no demo model; export one with q35chat export"):
        demo.ensure_demo(_export)


def test_a_cache_that_cannot_be_written_is_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(ExportError, match=r"cannot write the demo model to .*; set XDG_CACHE_HOME"):
        demo.ensure_demo(_export)
