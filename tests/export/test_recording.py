from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.bundle.bundle import MANIFEST_NAME, Bundle
from q35export.staging import clear_leftovers, is_leftover, replace_manifest
from tests.export.bundles import names, sample_manifest, write_sample_bundle


def test_a_manifest_takes_its_place_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_sample_bundle(tmp_path / "out")
    steps: list[str] = []
    fsync, move = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        steps.append("fsync")
        fsync(descriptor)

    def moved(path: Path, target: Path) -> Path:
        steps.append(f"replace {target.name}")
        assert is_leftover(path.name)
        return move(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    replace_manifest(out, replace(sample_manifest(), precision="int8"))
    assert steps == ["fsync", f"replace {MANIFEST_NAME}"]
    assert Bundle.open(out, check="full").manifest.precision == "int8"
    assert (out / MANIFEST_NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_whatever_stops_it_the_old_manifest_stays_alone(
    error: BaseException, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_sample_bundle(tmp_path / "out")
    before = names(out)

    def stopped(*_: object) -> None:
        raise error

    monkeypatch.setattr(os if step == "fsync" else Path, step, stopped)
    with pytest.raises(type(error)):
        replace_manifest(out, replace(sample_manifest(), precision="int8"))
    assert names(out) == before
    assert Bundle.open(out, check="full").manifest == sample_manifest()


def test_only_manifests_that_never_took_their_place_are_cleared(tmp_path: Path) -> None:
    out = write_sample_bundle(tmp_path / "out")
    others = [f"{MANIFEST_NAME}ab_12xyz", f".{MANIFEST_NAME}", f".{MANIFEST_NAME}.bak"]
    for name in [f".{MANIFEST_NAME}ab_12xyz", *others]:
        (out / name).write_text("{")
    clear_leftovers(out)
    assert set(others) < set(names(out))
    assert f".{MANIFEST_NAME}ab_12xyz" not in names(out)
