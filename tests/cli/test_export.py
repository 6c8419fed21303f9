from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from q35chat import cli
from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.bundle.library import models_folder
from q35chat.commands import export as command
from q35chat.commands.export import export_model
from q35chat.commands.export_worker import estimate
from q35chat.commands.model import graph_opener
from q35chat.errors import RuntimeFailure, UsageError
from q35export.request import ExportRequest
from q35export.verify import NotComparableError
from tests.cli.scripted import recorded
from tests.support.checkpoints import make_checkpoint
from tests.vision.files import encoded, noise


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


def test_a_dry_run_says_where_a_chat_will_not_fit(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 << 20))
    seen = recorded()
    asked = request(checkpoint, tmp_path / "out", dry_run=True)
    assert export_model(asked, seen.console, verify=None) == 0
    last = seen.out.getvalue().splitlines()[-1]
    assert last.startswith("too much for this machine, which has 64.0 MiB of memory: ")


def test_a_hub_id_is_not_streamed(tmp_path: Path) -> None:
    asked = ExportRequest("Qwen/Qwen3.5-0.8B", tmp_path / "out", stream=True)
    with pytest.raises(UsageError, match=r"--stream is for a folder, and Qwen/Qwen3\.5-0\.8B is a"):
        export_model(asked, recorded().console, verify=None)


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


def test_a_folder_that_the_shell_would_split_is_quoted(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = recorded()
    assert export_model(request(checkpoint, Path("my out")), seen.console, verify=False) == 0
    assert seen.err.getvalue().endswith("chat with it: q35chat --model-dir 'my out'\n")


def test_what_an_npu_cannot_run_yet_is_to_be_converted_first(
    checkpoint: Path, tmp_path: Path
) -> None:
    seen = recorded()
    out = tmp_path / "out"
    asked = ExportRequest(
        str(checkpoint), out, target="ascend-310p", max_seq_len=32, gears=(16,), component="decode"
    )
    assert export_model(asked, seen.console, verify=False) == 0
    said = seen.err.getvalue()
    assert said.endswith(f"convert it on the NPU's host: q35chat convert {out}\n")
    assert "chat with it" not in said
    with pytest.raises(RuntimeFailure, match=f"run q35chat convert {out}"):
        graph_opener(Bundle.open(out), threads=1)


def test_a_damaged_graph_is_named_when_a_question_is_asked(
    checkpoint: Path, tmp_path: Path
) -> None:
    out, seen = tmp_path / "out", recorded()
    export_model(request(checkpoint, out), recorded().console, verify=False)
    path = out / "text" / "model.onnx"
    path.write_bytes(path.read_bytes().replace(b"input_ids", b"input_idz", 1))
    assert cli.run(["ask", "--no-save", "--model-dir", str(out), "x"], seen.console) == 1
    assert f"{out}/text/model.onnx was altered" in seen.err.getvalue()
    assert f"--out {out} --force`" in seen.err.getvalue()


@pytest.mark.parametrize(("component", "lacking"), [("text", "vision"), ("vision", "text")])
def test_an_export_of_one_component_says_what_the_bundle_cannot_do_and_how_it_could(
    checkpoint: Path, tmp_path: Path, component: str, lacking: str
) -> None:
    seen = recorded()
    out = tmp_path / "my out"
    half = request(checkpoint, out, component=component)
    assert export_model(half, seen.console, verify=False) == 0
    *_, line = [line for line in seen.err.getvalue().splitlines() if line.startswith("this bundle")]
    what = "answers nothing" if lacking == "text" else "reads no pictures"
    assert line.startswith(f"this bundle {what} until its {lacking} graph is exported, too: run `")
    assert ("chat with it" in seen.err.getvalue()) == (component == "text")

    command = shlex.split(line.partition("`")[2].rstrip("`"))
    assert cli.run([*command[1:], "--no-verify"], recorded().console) == 0
    assert Bundle.open(out, check="full").manifest.graphs.keys() == {"text", "vision"}


def test_a_picture_for_a_bundle_without_a_vision_graph_is_refused_with_what_adds_one(
    checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export_model(request(checkpoint, out, component="text"), recorded().console, verify=False)
    picture = tmp_path / "photo.png"
    picture.write_bytes(encoded(noise(64, 48), "PNG"))
    seen = recorded()
    line = ["ask", "--no-save", "--model-dir", str(out), "--image", str(picture), "x"]
    assert cli.run(line, seen.console) == 1
    said = seen.err.getvalue()
    what = f"from the folder of its checkpoint, {checkpoint.name}, with `"
    assert f"this bundle has no vision graph: export it {what}" in said
    assert f"--out {out} --component vision`" in said
    assert "other scripts" not in said


def test_the_memory_of_a_chat_counts_the_program_and_not_only_the_model(
    checkpoint: Path, tmp_path: Path
) -> None:
    seen = recorded()
    export_model(request(checkpoint, tmp_path / "out", dry_run=True), seen.console, verify=None)
    (said,) = re.findall(r"memory for a chat: about ([\d.]+) MiB", seen.out.getvalue())
    assert float(said) > 100
    assert "program 100.0 MiB" in seen.out.getvalue()
    assert min(cost["memory"] for cost in estimate(request(checkpoint, tmp_path))["costs"]) > 100e6


def test_asking_for_the_comparison_without_torch_is_refused_before_the_export(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="-m pip install torch, or use --no-verify"):
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


@pytest.mark.parametrize("verify", [None, True])
def test_a_bundle_that_was_there_is_compared_where_that_was_asked_for(
    verify: bool | None, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_model(request(checkpoint, tmp_path / "out"), recorded().console, verify=False)
    calls: list[tuple[Path, Path]] = []

    def compare(bundle: Path, folder: Path, *_: object) -> int:
        calls.append((bundle, folder))
        return 1

    monkeypatch.setattr(command, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "compare", compare)
    code = export_model(request(checkpoint, tmp_path / "out"), recorded().console, verify=verify)
    assert calls == ([(tmp_path / "out", checkpoint)] if verify else [])
    assert code == (1 if verify else 0)


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
        raise NotComparableError("comparing needs 40.0 GB")

    monkeypatch.setattr(command, "find_spec", lambda name: object())
    monkeypatch.setattr(command, "compare", compare)
    seen = recorded()
    assert export_model(request(checkpoint, tmp_path / "out"), seen.console, verify=None) == 0
    assert "not compared with the checkpoint: comparing needs 40.0 GB" in seen.err.getvalue()
    with pytest.raises(NotComparableError):
        export_model(request(checkpoint, tmp_path / "other"), recorded().console, verify=True)


def test_a_good_export_of_few_slots_ends_well(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: object())
    seen = recorded()
    assert export_model(request(checkpoint, tmp_path / "out"), seen.console, verify=None) == 0
    assert "not compared with the checkpoint: no sample fits the 64 slots" in seen.err.getvalue()
    with pytest.raises(NotComparableError, match=r"export with --max-seq-len \d+ or more"):
        export_model(request(checkpoint, tmp_path / "other"), recorded().console, verify=True)
    assert is_bundle(tmp_path / "other")


def test_the_command_line_tells_a_precision_that_was_given_from_the_default(
    checkpoint: Path, tmp_path: Path
) -> None:
    line = ["export", str(checkpoint), "--out", str(tmp_path / "out"), "--dry-run"]
    npu = [*line, "--target", "ascend-310p", "--max-seq-len", "64"]
    assert cli.run(npu, recorded().console) == 0
    seen = recorded()
    assert cli.run([*npu, "--precision", "int4"], seen.console) == 2
    assert "--precision is for --target cpu, found ascend-310p" in seen.err.getvalue()
    assert cli.run([*line, "--target", "cpu", "--gears", "32"], recorded().console) == 2


def test_a_name_is_a_place_in_the_models_folder(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    asked: list[ExportRequest] = []

    def note(request: ExportRequest, *_: object, **__: object) -> int:
        asked.append(request)
        return 0

    monkeypatch.setattr(command, "export_model", note)
    line = ["export", str(checkpoint)]
    assert cli.run([*line, "--name", "small"], recorded().console) == 0
    assert cli.run(line, recorded().console) == 0
    assert [request.out for request in asked] == [models_folder() / "small", Path("out")]
    for wrong, said in (
        (["--name", "small", "--out", "x"], "--out elsewhere; give one"),
        (["--name", "../x"], "../x is no name for a model"),
        (["--name", "out"], "out is no name for a model"),
    ):
        seen = recorded()
        assert cli.run([*line, *wrong], seen.console) == 2
        assert said in seen.err.getvalue()
