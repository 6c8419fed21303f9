"""Which bundle a command uses, and how it is opened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from q35chat.ascend.options import NpuOptions
from q35chat.bundle.bundle import MANIFEST_NAME, Bundle, FileEntry
from q35chat.chat.events import Finished
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.model import (
    ModelChoice,
    check_room_beside,
    choice_of,
    choose_model,
    graph_opener,
    load_model,
    make_demo,
)
from q35chat.commands.options import ModelOptions
from q35chat.errors import RuntimeFailure, UsageError
from q35chat.settings import Settings
from q35export import pipeline
from q35export.components import builders_for
from q35export.request import COMPONENTS, ExportRequest
from tests.export.bundles import write_sample_bundle
from tests.support.exported import random_bundle

DEMO = Path("/cache/demo")


def _no_demo() -> Path:
    raise AssertionError("the demo was made")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_option_wins(here: Path) -> None:
    chosen = choose_model(Path("mine"), Settings(model_dir="set"), _no_demo)
    assert chosen == ModelChoice(Path("mine"))


def test_the_settings_come_next(here: Path) -> None:
    chosen = choose_model(None, Settings(model_dir="~/set"), _no_demo)
    assert chosen == ModelChoice(Path.home() / "set")


def test_a_bundle_in_out_comes_next(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / MANIFEST_NAME).write_text("{}", encoding="utf-8")
    assert choose_model(None, Settings(), _no_demo) == ModelChoice(Path("out"))


def test_a_folder_out_that_is_no_bundle_does_not_count(here: Path) -> None:
    (here / "out").mkdir()
    assert choose_model(None, Settings(), lambda: DEMO) == ModelChoice(DEMO, is_demo=True)


def test_the_bundle_that_a_killed_export_was_to_replace_is_used_and_named(here: Path) -> None:
    write_sample_bundle(here / ".out.q35-old-7")
    said: list[str] = []
    for options in (ModelOptions(model_dir=Path("out")), ModelOptions()):
        chosen = choice_of(options, Settings(), said.append)
        assert chosen.path == Path(".out.q35-old-7")
    assert said[0] == (
        "an export to out was killed; the bundle it was to replace, .out.q35-old-7, is used"
    )


SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_bundle(tmp_path_factory, precision="int4", max_seq_len=256)


def test_a_graph_that_cannot_be_loaded_names_the_command_that_finds_damage(
    bundle: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(bundle, tmp_path / "my out"))
    path = out / "text" / "model.onnx"
    path.write_bytes(path.read_bytes().replace(b"input_ids", b"input_idz", 1))
    with pytest.raises(RuntimeFailure) as error:
        graph_opener(Bundle.open(out, check="names"), threads=1).open_graph(path)
    assert str(error.value).startswith(f"cannot load {path}: ")
    advice = f"; `q35chat doctor --model-dir '{out}'` says whether the bundle is damaged"
    assert str(error.value).endswith(advice)


@pytest.mark.parametrize(
    ("npu", "option"),
    [
        (NpuOptions(device_id=1), "--device-id"),
        (NpuOptions(residency="swap"), "--residency"),
        (NpuOptions(host_state_roundtrip=True), "--host-state-roundtrip"),
    ],
)
def test_options_of_an_npu_are_refused_for_a_bundle_for_the_cpu(
    npu: NpuOptions, option: str, bundle: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{option} is for bundles for an NPU, and this one is"):
        graph_opener(Bundle.open(bundle), threads=None, npu=npu)


def _reused_after_an_edit(bundle: Path, snapshot_mib: int) -> int:
    backend = load_model(ModelChoice(bundle, snapshot_mib=snapshot_mib), threads=1).backend
    turns = [Turn("user", "first question")]
    for text in ("second question", "third question"):
        *_, last = backend.run(turns, SETTINGS, lambda: False)
        assert isinstance(last, Finished)
        turns += [
            Turn("assistant", last.text, token_ids=last.token_ids, finish=last.reason),
            Turn("user", text),
        ]
    edited = [*turns[:-1], replace(turns[-1], text="quite another question")]
    list(backend.run(turns, SETTINGS, lambda: False))
    return backend.plan(edited, SETTINGS).reused_tokens


@pytest.mark.parametrize("experts", [0, 8])
def test_weights_that_no_memory_holds_are_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: int
) -> None:
    write_sample_bundle(tmp_path)
    opened = Bundle.open(tmp_path)
    manifest = opened.manifest
    facts = replace(manifest.model, experts=experts)
    files = {"text/model.bin": FileEntry(20 << 30, "")}
    huge = replace(manifest, model=facts, files=files, precision="int4", target="cpu")
    memory = SimpleNamespace(total=16 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    wanted = "22.4 GiB" if experts else "20.0 GiB"
    with pytest.raises(RuntimeFailure, match=f"{wanted} of memory, this machine has 16.0 GiB"):
        graph_opener(Bundle(opened.path, huge), None)
    memory.total = 24 << 30
    graph_opener(Bundle(opened.path, huge), None)


def test_weights_without_room_beside_those_that_answer_are_refused_with_both_numbers(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SimpleNamespace(available=10)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.raises(RuntimeFailure, match="beside the model that answers, 10 B are free"):
        check_room_beside(bundle)
    memory.available = 1 << 30
    check_room_beside(bundle)


def test_an_edit_reuses_what_the_budget_could_keep(bundle: Path) -> None:
    assert _reused_after_an_edit(bundle, 0) == 0
    assert _reused_after_an_edit(bundle, 64) > 20


@pytest.mark.parametrize("name", ["text/model.bin", "vision/model.onnx"])
def test_a_damaged_demo_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    path = make_demo(said.append) / name
    before = path.read_bytes()
    path.write_bytes(bytes(len(before)))

    assert make_demo(said.append) / name == path
    assert path.read_bytes() == before
    make_demo(said.append)
    assert said.count("the demo model is damaged and made again") == 1


def test_the_demo_is_for_the_cpu_also_where_an_npu_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ExportRequest] = []
    monkeypatch.setattr(pipeline, "default_target", lambda: "ascend-310p")
    monkeypatch.setattr(pipeline, "export", lambda request, _: seen.append(request))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    make_demo(lambda _: None)
    assert [wish.target for wish in seen] == ["cpu"]
    assert tuple(builders_for(seen[0])) == COMPONENTS["cpu"]
