"""What a comparison refuses before it loads anything."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.errors import BundleError
from q35export.config import load_config
from q35export.inventory import expected_tensors
from q35export.pipeline import export
from q35export.verify import (
    NotComparableError,
    requirements,
    verify,
)
from q35export.verify import compare as comparing
from q35export.verify.reference import EncodedPrompt, Encoder
from q35export.verify.requirements import check_memory, fitting, slots_of
from q35export.verify.samples import SAMPLES, Sample
from tests.export.bundles import request_for
from tests.export.recorder import Recorder
from tests.support.variants import text_model


@pytest.fixture(scope="module")
def small(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("small") / "out"
    export(request_for(checkpoint, out, max_seq_len=48), Recorder())
    return Bundle.open(out)


def with_free_memory(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = free

    monkeypatch.setattr(psutil, "virtual_memory", Memory)


@pytest.mark.parametrize("opened", [1, 2])
def test_memory_is_counted_for_reference_bundle_and_the_largest_matrix(
    opened: int, small: Bundle, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(checkpoint)
    shapes = {**expected_tensors(config, "text"), **expected_tensors(config, "vision")}
    sizes = [4 * int(np.prod(shape)) for shape in shapes.values()]
    weights = sum((small.path / name / "model.bin").stat().st_size for name in ("text", "vision"))
    graphs = sum((small.path / name / "model.onnx").stat().st_size for name in ("text", "vision"))
    needed = sum(sizes) + max(sizes) + (1 + opened) * (weights + graphs)

    with_free_memory(needed, monkeypatch)
    check_memory(small, config, opened=opened)
    with_free_memory(needed - 1, monkeypatch)
    with pytest.raises(NotComparableError, match=r"needs 0\.0 GB .*close other programs"):
        check_memory(small, config, opened=opened)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(
    small: Bundle, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_free_memory(1000, monkeypatch)
    with pytest.raises(NotComparableError, match="GB of memory"):
        verify(small.path, checkpoint)


def test_a_bundle_without_vision_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    export(request_for(checkpoint, tmp_path / "out", component="text"), Recorder())
    with pytest.raises(BundleError, match="no vision graph"):
        verify(tmp_path / "out", checkpoint)


@pytest.mark.parametrize("blind", ["bundle", "checkpoint"])
def test_what_sees_pictures_is_not_compared_with_what_sees_none(
    blind: str, small: Bundle, checkpoint: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(checkpoint, tmp_path / "other")
    text_model(other)
    bundle, model = small.path, other
    if blind == "bundle":
        export(request_for(other, tmp_path / "out"), Recorder())
        bundle, model = tmp_path / "out", checkpoint
    with pytest.raises(NotComparableError, match=r"sees pictures and .* does not: compare with"):
        verify(bundle, model)


def test_the_slots_are_those_of_the_graph(small: Bundle, checkpoint: Path, tmp_path: Path) -> None:
    assert slots_of(small) == 48
    for fused, slots in ((True, 32), (False, None)):
        out = tmp_path / str(slots)
        request = request_for(
            checkpoint, out, target="ascend-310p", component="decode", fused_decode=fused
        )
        export(request, Recorder())
        assert slots_of(Bundle.open(out)) == slots


def prompts(*lengths: int) -> list[tuple[Sample, EncodedPrompt]]:
    return [(Sample(str(n), ""), EncodedPrompt(np.zeros(n, np.int64))) for n in lengths]


def test_samples_that_do_not_fit_are_left_out_with_a_note(small: Bundle) -> None:
    notes: list[str] = []
    given = prompts(40, 41, 42)  # the last of 8 choices is never read
    assert fitting(given, small, 8, notes.append) == given[:2]
    assert notes == ["sample left out: 42 needs 49 slots, the bundle has 48"]


def test_a_cache_that_grows_takes_every_sample(
    small: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "slots_of", lambda _: None)
    given = prompts(10, 10_000)
    assert fitting(given, small, 8, lambda _: None) == given


def test_without_a_sample_that_fits_nothing_is_loaded(
    small: Bundle, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(comparing, "Reference", never)
    encoder = Encoder(checkpoint)
    shortest = min(len(encoder.encode(sample).ids) for sample in SAMPLES) + 8 - 1
    message = rf"no sample fits the 48 slots of .*out: .* needs {shortest}; export with --max-seq"
    with pytest.raises(NotComparableError, match=message):
        verify(small.path, checkpoint, tokens=8)


def test_a_converted_bundle_is_refused_in_one_line(
    small: Bundle, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bundle, "graph_path", lambda bundle, name: bundle.path / f"{name}.mindir")
    with pytest.raises(BundleError, match="is converted for its NPU"):
        verify(small.path, checkpoint)
