"""Rounded matrices in the file that becomes the bundle's: written once, no bundle harmed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.calibration.codes import ROUNDED_FILE, CodesFile
from q35export.matrix import Matrix
from q35export.pipeline import export
from q35export.quantize import BlockFormat, quantize
from q35export.request import ExportRequest
from q35export.weights import FileSink
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

FMT = BlockFormat(4, 32)


def _matrix(seed: int) -> Matrix:
    weights = np.random.default_rng(seed).standard_normal((24, 64)).astype(np.float32)
    return Matrix(24, 64, lambda start, stop: weights[start:stop])


def _told(codes: CodesFile) -> dict[str, tuple[bytes, bytes]]:
    found = {}
    for name, one in codes.stored().items():
        assert one.read is not None
        packed, scales = one.read()
        found[name] = (packed.tobytes(), scales.tobytes())
    return found


class Watching(Recorder):
    """Knows the files that lay in the work folder while matrices were rounded, by name."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.found: dict[str, os.stat_result] = {}

    def advance(self, component: str, count: int) -> None:
        super().advance(component, count)
        self.found |= {path.name: path.stat() for path in self._folder.glob("*")}


@pytest.mark.parametrize("shape", ["experts", "plain"])
def test_what_is_rounded_is_written_once(tmp_path: Path, shape: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "in", shape, seed=3)
    text = tmp_path / "text"
    text.write_text("The user and the assistant. 图片。\n" * 9, encoding="utf-8")
    request = ExportRequest(
        str(checkpoint), tmp_path / "out", target="cpu", max_seq_len=64, calibration=text
    )
    export(request, seen := Watching(tmp_path / ".out.q35-calibration"))
    made = Bundle.open(request.out, check="full").path / "text" / "model.bin"
    rounded = seen.found.pop(ROUNDED_FILE)
    assert made.stat().st_ino == rounded.st_ino
    assert made.stat().st_nlink == 1
    assert made.stat().st_size - rounded.st_size < rounded.st_size
    others = {name for name, stat in seen.found.items() if not name.startswith("hidden ")}
    assert others == {"key", "rounded.json"}


def test_a_file_system_without_hard_links_makes_the_same_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint(tmp_path / "in", "experts", seed=3)
    requests = [
        ExportRequest(
            str(checkpoint), tmp_path / name, target="cpu", max_seq_len=64, calibrate=False
        )
        for name in ("linked", "copied")
    ]
    export(requests[0], Recorder())

    def refused(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(os, "link", refused)
    export(requests[1], Recorder())
    linked, copied = (Bundle.open(one.out, check="full").manifest.files for one in requests)
    assert linked == copied


def _one_layer_kept(folder: Path) -> tuple[CodesFile, dict[str, tuple[bytes, bytes]]]:
    """Codes of a layer that was kept, behind which another matrix was written; and what it told."""
    codes = CodesFile(folder)
    codes.round("first", _matrix(1), FMT)
    codes.keep_all(1)
    kept = _told(codes)
    codes.round("second", _matrix(2), FMT)
    return codes, kept


def test_what_came_behind_the_last_layer_that_was_kept_is_cut_off(tmp_path: Path) -> None:
    _, kept = _one_layer_kept(tmp_path)
    again = CodesFile(tmp_path)
    assert (again.layers, _told(again)) == (1, kept)
    assert kept["first"] == tuple(one.tobytes() for one in quantize(_matrix(1).rows(0, 24), FMT))
    again.round("second", _matrix(2), FMT)
    again.forget("second")
    assert again.path.read_bytes() == CodesFile(tmp_path).path.read_bytes()


def test_a_bundle_that_has_the_file_stays_as_it_is(tmp_path: Path) -> None:
    codes, kept = _one_layer_kept(tmp_path)
    with FileSink(tmp_path / "model.bin", lambda _: None, codes.path) as sink:
        sink.store(4, lambda: iter((np.zeros(1, np.float32),)))
    before = (tmp_path / "model.bin").read_bytes()
    assert sink.sha256 == hashlib.sha256(before).hexdigest()
    assert sink.size == len(before)
    again = CodesFile(tmp_path)  # a process that was killed once the bundle had its place
    assert _told(again) == kept
    again.round("third", _matrix(3), FMT)
    assert (tmp_path / "model.bin").read_bytes() == before
