"""The application's exporter: its process, its words, and its end."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.constants
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.commands.export_process import ChildExporter
from q35chat.commands.export_worker import watch_download
from q35chat.errors import CheckpointError, ExportError, Q35Error, UsageError
from q35chat.tui.exporting import BundleWish, FoundBundle, Occupied, Phase, Stopped
from tests.cli.processes import PATIENCE_S, running
from tests.export.bundles import names, write_sample_bundle
from tests.support.checkpoints import make_checkpoint

HELD = (sys.executable, "-m", "tests.support.held_export")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain")


@pytest.fixture
def wish(checkpoint: Path, tmp_path: Path) -> BundleWish:
    return BundleWish(str(checkpoint), "huggingface", "fp32", 64, tmp_path / "out")


def child(script: str) -> ChildExporter:
    """An exporter whose worker is this program."""
    return ChildExporter((sys.executable, "-c", script))


def test_an_estimate_is_what_the_export_then_writes(wish: BundleWish) -> None:
    wish = replace(wish, precision="int8")
    estimate = ChildExporter().job().estimate(wish)
    assert [cost.precision for cost in estimate.costs] == ["int4", "int4-exact", "int8", "fp32"]
    assert estimate.longest == 262_144
    assert estimate.memory_free > 0
    cost = estimate.of("int8")
    assert cost is not None
    assert not wish.folder.exists()
    phases: list[Phase] = []
    made = ChildExporter().job().export(wish, phases.append)
    assert (made.folder, made.size, made.ready) == (wish.folder, cost.disk, True)
    assert made.command == f"q35chat --model-dir {wish.folder}"
    ended = [(phase.name, phase.done) for phase in phases if phase.ended]
    assert ended[0][0] == "rounding"
    assert ended[1:] == list(cost.parts)
    manifest = Bundle.open(wish.folder, check="full").manifest
    assert (manifest.precision, manifest.capacity) == ("int8", 64)


def test_a_bundle_in_the_way_is_told_apart_and_can_be_replaced(wish: BundleWish) -> None:
    exporter = ChildExporter()
    assert exporter.job().export(wish, lambda _: None).size > 0
    assert exporter.job().export(wish, lambda _: None).size == 0
    other = replace(wish, precision="int4")
    with pytest.raises(Occupied, match=r"out holds an fp32 bundle, not int4$"):
        exporter.job().export(other, lambda _: None)
    exporter.job().export(replace(other, replace=True), lambda _: None)
    assert Bundle.open(wish.folder).manifest.precision == "int4"


def test_a_damaged_bundle_in_the_way_can_be_replaced(wish: BundleWish) -> None:
    exporter = ChildExporter()
    exporter.job().export(wish, lambda _: None)
    (wish.folder / "q35chat.json").write_text("{")
    with pytest.raises(Occupied, match=r"is not valid JSON .*; replace it$"):
        exporter.job().export(wish, lambda _: None)
    exporter.job().export(replace(wish, replace=True), lambda _: None)
    assert Bundle.open(wish.folder).manifest.precision == "fp32"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("OccupiedError", Occupied),
        ("BundleError", Occupied),
        ("UsageError", UsageError),
        ("Nonsense", ExportError),
    ],
)
def test_the_kind_of_a_failure_says_whether_a_bundle_is_in_the_way_and_its_words_do_not(
    kind: str, expected: type[Exception], wish: BundleWish
) -> None:
    said = {"failed": [kind, "a folder may be called --force"]}
    with pytest.raises(expected) as raised:
        child(f"print({json.dumps(said)!r})").job().export(wish, lambda _: None)
    assert type(raised.value) is expected


def test_what_is_wrong_keeps_its_kind_and_speaks_of_the_form(wish: BundleWish) -> None:
    job = ChildExporter().job
    with pytest.raises(CheckpointError, match=r"there is no folder 'nope'"):
        job().estimate(replace(wish, model="nope"))
    wish.folder.write_text("a file")
    with pytest.raises(UsageError, match=r"the folder .* is a file; choose another folder"):
        job().estimate(wish)


def test_a_stopped_export_leaves_nothing(wish: BundleWish, tmp_path: Path) -> None:
    job = ChildExporter(HELD).job()

    def stop(phase: Phase) -> None:
        if phase.name == "text" and phase.done:
            assert any(".q35-partial" in name for name in names(tmp_path))
            job.cancel()

    with pytest.raises(Stopped):
        job.export(wish, stop)
    assert names(tmp_path) == []


def test_a_job_that_was_stopped_before_it_began_never_begins(wish: BundleWish) -> None:
    job = child("raise SystemExit('began')").job()
    job.cancel()
    with pytest.raises(Stopped):
        job.export(wish, lambda _: None)


def test_the_export_ends_with_its_parent(wish: BundleWish, tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from q35chat.commands.export_process import ChildExporter\n"
        "from q35chat.tui.exporting import BundleWish\n"
        "wish = BundleWish(sys.argv[1], 'huggingface', 'int8', 64, Path(sys.argv[2]))\n"
        f"ChildExporter({HELD!r}).job().export(wish, lambda phase: print(phase.name, flush=True))\n"
    )
    line = [sys.executable, "-c", script, wish.model, str(wish.folder)]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with running(line, environment=paths) as parent:
        assert parent.stdout is not None
        assert b"text\n" in iter(parent.stdout.readline, b""), "it ended before its last graph"
        lock = tmp_path / ".out.q35-lock"
        assert lock.exists()
        assert parent.stderr is not None
        parent.kill()
        end = threading.Thread(target=parent.stderr.read, daemon=True)
        end.start()  # of the pipe that parent and worker write to: both are gone
        end.join(PATIENCE_S)
        assert not end.is_alive()
        assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", r"was killed, perhaps for want of memory"),
        ("raise SystemExit(7)", r"broke off \(exit code 7\); the folder is as it was"),
        ("print('{\"made\": {\"mod', end='')", r"broke off \(exit code 0\)"),
    ],
)
def test_a_worker_that_dies_is_a_failure_with_its_cause(
    script: str, words: str, wish: BundleWish
) -> None:
    with pytest.raises(ExportError, match=words):
        child(script).job().export(wish, lambda _: None)


def test_what_libraries_print_is_no_answer(wish: BundleWish) -> None:
    worker = (
        "import sys, q35export.request as d\n"
        "d.default_target = lambda: print('noise on stdout') or 'cpu'\n"
        "from q35chat.commands.export_worker import main\n"
        "sys.exit(main(sys.argv[1]))\n"
    )
    assert len(child(worker).job().estimate(wish).costs) == 4


def test_the_room_of_a_folder_that_is_not_there_is_that_of_its_parent(tmp_path: Path) -> None:
    exporter = ChildExporter()
    assert exporter.room(tmp_path / "a" / "b") > 0
    assert exporter.room(tmp_path) > 0


def test_the_bundle_in_a_folder_is_known_before_an_export(tmp_path: Path) -> None:
    exporter = ChildExporter()
    standing = exporter.standing(write_sample_bundle(tmp_path / "there"))
    assert standing == FoundBundle("Qwen/Qwen3.5-0.8B", "int4", 64)
    assert exporter.standing(tmp_path) is None


def test_a_failure_names_the_folder_as_it_was_typed(
    wish: BundleWish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wish.folder.parent)
    (wish.folder.parent / "out").touch()
    with pytest.raises(Q35Error, match=r"^the folder out is a file; choose another folder$"):
        ChildExporter().job().export(replace(wish, folder=Path("out")), lambda _: None)


class Cache:
    """A hub's cache in which weights grow, and what the hub says of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blobs = folder / "models--owner--model" / "blobs"
        self.blobs.mkdir(parents=True)
        self.files = [SimpleNamespace(file_size=1000, will_download=True)]
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
        monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: self.files)

    def holds(self, name: str, size: int) -> None:
        (self.blobs / name).write_bytes(bytes(size))


def watched(until: int) -> list[tuple[int, int]]:
    """What a watch tells until so many bytes are there."""
    told: list[tuple[int, int]] = []
    enough = threading.Event()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        if done >= until:
            enough.set()

    over = threading.Event()
    watch = threading.Thread(target=watch_download, args=("owner/model", None, tell, over))
    watch.start()
    try:
        assert enough.wait(PATIENCE_S), f"no more than {told}"
    finally:
        over.set()
        watch.join()
    return told


def test_a_download_counts_what_came_since_and_what_was_left_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, monkeypatch)
    cache.holds("other", 5000)
    cache.holds("half.incomplete", 400)
    assert watched(until=400)[-1] == (400, 1000)


def test_a_download_of_unknown_size_tells_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, monkeypatch)
    cache.holds("half.incomplete", 400)

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    assert watched(until=400)[-1] == (400, 0)


def test_what_is_in_the_cache_is_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache(tmp_path, monkeypatch).files = []
    told: list[tuple[int, int]] = []
    watch_download("owner/model", None, lambda *sizes: told.append(sizes), threading.Event())
    assert told == []
