from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from q35chat.ascend.native_log import native_log
from q35chat.ascend.options import log_path
from q35chat.commands import bench
from q35chat.commands.bench import BenchOptions, run_bench
from q35chat.errors import BundleError, CapacityError, OutputError, UsageError
from q35chat.files import replace_file
from tests.cli.scripted import recorded
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.checkpoints import make_checkpoint
from tests.support.disk import full_after
from tests.support.exported import converted_bundle, random_bundle

SMALL = BenchOptions(prompt=20, tokens=4, contexts=[6, 30], repeat=2, threads=1)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_bundle(tmp_path_factory, precision="int4", max_seq_len=64)


def steady(_threads: int) -> float:
    return 1e10


def full(path: Path, content: str | bytes) -> None:
    with full_after(100):
        replace_file(path, content)


def test_a_table_for_people(bundle: Path) -> None:
    seen = recorded()

    assert run_bench(replace(SMALL, model_dir=bundle), seen.console, steady) == 0
    text = seen.out.getvalue()
    for wanted in ("int4, cpu, 1 thread, 64 slots", "20 behind 0", "behind 30", "% of ",
                   "traffic    a step reads", "memory ", "allocation "):  # fmt: skip
        assert wanted in text
    assert "\x1b" not in text


def test_one_json_object_with_every_step(bundle: Path) -> None:
    seen = recorded()

    run_bench(replace(SMALL, model_dir=bundle, as_json=True), seen.console, steady)
    result = json.loads(seen.out.getvalue())
    assert result["complete"]
    assert [run["context"] for run in result["runs"]["decode"]] == [6, 6, 30, 30]
    assert all(len(run["wall_ms"]) == 4 for run in result["runs"]["decode"])
    assert [point["context"] for point in result["decode"]] == [6, 30]
    assert all(0 < point["own_share"] < 1 for point in result["decode"])
    assert result["bandwidths"] == [1e10] * 4
    assert result["traffic"]["weights"] > 0
    assert result["memory"]["after"]["peak"] >= result["memory"]["loaded"]["resident"]


def test_what_is_not_given_fits_the_bundle(bundle: Path) -> None:
    seen = recorded()
    options = BenchOptions(model_dir=bundle, repeat=1, threads=1, as_json=True)

    assert run_bench(options, seen.console, steady) == 0
    assert json.loads(seen.out.getvalue())["plan"] == {
        "prompt": 64, "tokens": 16, "contexts": [32, 48], "repeat": 1,
    }  # fmt: skip


def test_a_saved_result_is_compared_and_drawn(bundle: Path, tmp_path: Path) -> None:
    saved, drawn = tmp_path / "then.json", tmp_path / "steps.png"
    run_bench(replace(SMALL, model_dir=bundle, out=saved), recorded().console, steady)
    seen = recorded()
    options = replace(SMALL, model_dir=bundle, compare=saved, plot=drawn)

    assert run_bench(options, seen.console, steady) == 0
    assert "decode tokens per s, behind 30" in seen.out.getvalue()
    assert "memory bytes read per s" in seen.out.getvalue()
    assert Image.open(drawn).format == "PNG"
    assert str(drawn) in seen.err.getvalue()


@pytest.mark.parametrize("name", ["out", "plot"])
def test_a_result_for_which_there_is_no_room_leaves_the_old_one(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / "result.png"
    file.write_text("old", encoding="utf-8")
    options = replace(SMALL, model_dir=bundle, **{name: file})  # type: ignore[arg-type]
    monkeypatch.setattr("q35chat.files.replace_file", full)
    with pytest.raises(OutputError, match=r"cannot write .*File too large") as failure:
        run_bench(options, recorded().console, steady)
    assert failure.value.exit_code == 1
    assert file.read_text(encoding="utf-8") == "old"


def test_a_comparison_is_part_of_the_json(bundle: Path, tmp_path: Path) -> None:
    saved = tmp_path / "then.json"
    run_bench(replace(SMALL, model_dir=bundle, out=saved), recorded().console, steady)
    seen = recorded()
    options = replace(SMALL, model_dir=bundle, compare=saved, as_json=True)

    run_bench(options, seen.console, steady)
    ratios = {row["name"]: row["ratio"] for row in json.loads(seen.out.getvalue())["comparison"]}
    assert ratios["memory bytes read per s"] == 1.0
    assert ratios["decode tokens per s, behind 6"] > 0


def test_ctrl_c_shows_what_was_measured_so_far(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[Callable[[], None]] = []

    @contextmanager
    def interrupted(stop: Callable[[], None]) -> Iterator[None]:
        stops.append(stop)
        yield

    def stopping(threads: int) -> float:
        if stops[1:]:
            stops[0]()
        stops.append(stops[0])
        return steady(threads)

    monkeypatch.setattr(bench, "stop_on_interrupt", interrupted)
    seen, saved = recorded(), tmp_path / "part.json"

    assert run_bench(replace(SMALL, model_dir=bundle, out=saved), seen.console, stopping) == 130
    assert "behind 6" in seen.out.getvalue()
    assert "behind 30" not in seen.out.getvalue()
    assert "stopped: this is what was measured so far" in seen.err.getvalue()
    assert json.loads(saved.read_text(encoding="utf-8"))["complete"] is False


def test_ctrl_c_before_anything_is_measured(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupted(stop: Callable[[], None]) -> Iterator[None]:
        stop()
        yield

    monkeypatch.setattr(bench, "stop_on_interrupt", interrupted)
    seen = recorded()

    assert run_bench(replace(SMALL, model_dir=bundle), seen.console, steady) == 130
    assert seen.out.getvalue() == ""
    assert seen.err.getvalue() == "stopped before anything was measured\n"


def test_progress_is_shown_on_a_terminal_and_taken_away(bundle: Path) -> None:
    seen = recorded(terminal=True)

    run_bench(replace(SMALL, model_dir=bundle), seen.console, steady)
    assert "loading the model" in seen.err.getvalue()
    assert "decode behind 30 tokens (6 of 6)" in seen.err.getvalue()
    assert seen.err.getvalue().endswith("\r\x1b[K")


def test_a_failure_leaves_no_half_line_on_a_terminal(bundle: Path) -> None:
    seen = recorded(terminal=True)

    with pytest.raises(CapacityError):
        run_bench(replace(SMALL, model_dir=bundle, prompt=65), seen.console, steady)
    assert seen.err.getvalue().endswith("\r\x1b[K")


def test_a_machine_whose_memory_cannot_be_measured_has_no_ceiling(bundle: Path) -> None:
    seen = recorded()

    assert run_bench(replace(SMALL, model_dir=bundle), seen.console, lambda _: None) == 0
    assert "behind 30" in seen.out.getvalue()
    assert "bandwidth" not in seen.out.getvalue()


def test_what_does_not_fit_is_refused(bundle: Path) -> None:
    with pytest.raises(CapacityError, match="a context of 61 with 4 steps needs 65 slots"):
        run_bench(replace(SMALL, model_dir=bundle, contexts=[61]), recorded().console, steady)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            replace(SMALL, out=Path("no/such/folder/a.json")),
            "--out no/such/folder/a.json cannot be written",
        ),
        (replace(SMALL, plot=Path("steps.svg")), "end it in .png"),
        (replace(SMALL, compare=Path("gone.json")), "cannot read gone.json"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_measured(
    options: BenchOptions, wanted: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=wanted):
        run_bench(replace(options, model_dir=tmp_path), recorded().console, steady)


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        run_bench(replace(SMALL, model_dir=tmp_path), recorded().console, steady)


def test_a_bundle_for_the_npu_is_measured_without_a_ceiling(
    tmp_path: Path, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    out = converted_bundle(
        make_checkpoint(tmp_path / "checkpoint"), tmp_path / "out", max_seq_len=64, gears=(16, 32),
        image_gears=(4,),
    )  # fmt: skip
    seen = recorded()
    try:
        options = replace(SMALL, model_dir=out, as_json=True, threads=None)
        assert run_bench(options, seen.console, steady) == 0
        with pytest.raises(UsageError, match="--threads is for bundles for the CPU, and this one"):
            run_bench(replace(options, threads=1), recorded().console, steady)
    finally:
        native_log(log_path()).remove()
    result = json.loads(seen.out.getvalue())
    assert result["subject"]["target"] == "ascend-310p"
    assert [point["reached"] for point in result["decode"]] == [None, None]
    assert result["bandwidths"] == []
