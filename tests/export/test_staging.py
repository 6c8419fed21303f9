from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.bundle.bundle import MANIFEST_NAME, Bundle, former, is_bundle
from q35chat.errors import ExportError
from q35export import staging
from q35export.staging import (
    clear_leftovers,
    exclusive,
    is_leftover,
    publish,
    replace_manifest,
    sigterm_raises,
    staging_folder,
)
from tests.export.bundles import names, sample_manifest, write_sample_bundle


def test_only_folders_of_exports_are_cleaned_away(tmp_path: Path) -> None:
    ours = [".out.q35-partial-7", ".out.q35-old-8", ".out.q35-rounded-9"]
    others = [".out.q35-partial-7x", ".other.q35-partial-7", "out.q35-partial-7", ".outXq35-old-8"]
    for name in [*ours, *others]:
        (tmp_path / name).mkdir()
    with exclusive(tmp_path / "out"):
        pass
    assert names(tmp_path) == sorted(others)


def test_a_link_in_the_place_of_a_leftover_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / ".out.q35-partial-7").symlink_to(tmp_path / "precious")
    with exclusive(tmp_path / "out"):
        pass
    assert (tmp_path / "precious").is_dir()


def test_an_old_bundle_goes_back_to_a_place_that_is_empty(tmp_path: Path) -> None:
    write_sample_bundle(tmp_path / ".out.q35-old-7")
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out"):
        assert Bundle.open(tmp_path / "out", check="full")
    assert names(tmp_path) == ["out"]


def test_two_exports_in_one_place_are_one_too_many(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        exclusive(out),
        exclusive(tmp_path / "other"),
        pytest.raises(ExportError, match=rf"an export \(process {os.getpid()}\) is writing {out}"),
        exclusive(out, "a conversion"),
    ):
        raise AssertionError


def test_where_only_the_bundle_can_be_written_the_lock_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_sample_bundle(tmp_path / "out")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    before = names(out)
    with exclusive(out, "a conversion"):
        assert names(tmp_path) == ["out"]
        with pytest.raises(ExportError, match=r"a conversion .* is writing"), exclusive(out):
            raise AssertionError
    assert names(out) == before


def test_a_lock_file_without_its_process_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".out.q35-lock").write_text("12345\n")
    with exclusive(tmp_path / "out"):
        pass
    assert names(tmp_path) == []


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ExportError, match="cannot write in"), exclusive(tmp_path / "file" / "out"):
        raise AssertionError


def test_a_failed_exchange_puts_the_old_bundle_back(tmp_path: Path) -> None:
    out = write_sample_bundle(tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "absent", out)
    assert Bundle.open(out, check="full")
    assert names(tmp_path) == ["out"]


def test_a_staging_folder_lasts_as_long_as_its_block(tmp_path: Path) -> None:
    with staging_folder(tmp_path / "out") as folder:
        (folder / "file").write_bytes(b"x")
        assert folder.parent == tmp_path
    assert names(tmp_path) == []


def test_a_published_folder_stays(tmp_path: Path) -> None:
    with staging_folder(tmp_path / "out") as folder:
        write_sample_bundle(folder)
        publish(folder, tmp_path / "out")
    assert Bundle.open(tmp_path / "out", check="full")
    assert names(tmp_path) == ["out"]


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal's programs have it, also where the tests run under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


def test_a_closed_terminal_stops_as_sigterm_does(hangup: None) -> None:
    with pytest.raises(SystemExit) as stopped, sigterm_raises():
        signal.raise_signal(signal.SIGHUP)
    assert stopped.value.code == 128 + signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


def test_under_nohup_a_closed_terminal_stops_nothing(hangup: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with sigterm_raises():
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (signal.SIGTERM, SystemExit),
        (signal.SIGHUP, SystemExit),
        (signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_a_stop_that_comes_while_a_failure_is_cleaned_up_waits_for_its_end(
    number: signal.Signals,
    raised: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hangup: None,
) -> None:
    remove = shutil.rmtree

    def interrupted(folder: Path) -> None:
        signal.raise_signal(number)
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    out = tmp_path / "out"

    def export() -> None:
        with sigterm_raises(), exclusive(out), staging_folder(out) as folder:
            (folder / "model.onnx.data").write_bytes(b"half")
            raise BrokenPipeError

    with pytest.raises(raised):
        export()
    assert names(tmp_path) == []


def test_a_stop_while_a_bundle_takes_its_place_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGTERM)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)

    def export() -> None:
        with sigterm_raises(), staging_folder(out) as folder:
            write_sample_bundle(folder)
            publish(folder, out)

    with pytest.raises(SystemExit):
        export()
    assert names(tmp_path) == ["out"]
    assert Bundle.open(out)


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


def test_a_bundle_that_is_replaced_is_there_at_every_moment(tmp_path: Path) -> None:
    out = write_sample_bundle(tmp_path / "out")
    missing, over = list[str](), threading.Event()

    def look() -> None:
        while not over.is_set():
            if not is_bundle(out):
                missing.append("missing")

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(50):
        with staging_folder(out) as folder:
            write_sample_bundle(folder)
            publish(folder, out)
    over.set()
    watcher.join()
    assert missing == []
    assert names(tmp_path) == ["out"]


def test_where_names_cannot_be_exchanged_a_killed_exchange_leaves_the_old_bundle_findable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_sample_bundle(tmp_path / "out")
    monkeypatch.setattr(staging, "exchange", lambda *_: False)
    child = os.fork()
    if child == 0:
        rename = Path.rename
        monkeypatch.setattr(
            Path, "rename", lambda path, to: os._exit(9) if to == out else rename(path, to)
        )
        publish(write_sample_bundle(tmp_path / "staged"), out)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    old = former(out)
    assert old is not None
    assert Bundle.open(old, check="full")
    with exclusive(out):
        assert Bundle.open(out, check="full")
    assert former(out) is None


def test_a_bundle_that_is_kept_from_being_written_is_replaced_and_goes(tmp_path: Path) -> None:
    out = write_sample_bundle(tmp_path / "out")
    for parent, folders, _ in os.walk(out):
        for name in folders:
            Path(parent, name).chmod(0o500)
    out.chmod(0o500)
    with exclusive(out), staging_folder(out) as folder:
        write_sample_bundle(folder)
        publish(folder, out)
    assert names(tmp_path) == ["out"]
    assert Bundle.open(out, check="full")


def test_what_cannot_be_removed_is_a_warning_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    out = write_sample_bundle(tmp_path / "out")
    monkeypatch.setattr(shutil, "rmtree", refuse)
    for times in (1, 2):
        with exclusive(out), staging_folder(out) as folder:
            write_sample_bundle(folder)
            publish(folder, out)
        assert Bundle.open(out, check="full")
        assert caplog.text.count("cannot be removed") >= times
