from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat import cli
from q35chat.ascend.kernel_trial import KernelTrial, TrialPlace
from q35chat.bundle.bundle import Bundle
from q35chat.commands.convert import NO_CONVERTER
from tests.support.converter import install_converter
from tests.support.exported import random_bundle


@pytest.fixture
def bundle(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = random_bundle(
        tmp_path_factory, target="ascend-310p", max_seq_len=32, gears=(16,), image_gears=(4,),
        component="decode",
    )  # fmt: skip
    return Path(shutil.copytree(made, tmp_path / "out"))


def run(capture: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run(["convert", *map(str, arguments)])
    return code, *capture.readouterr()


def test_without_a_converter_the_commands_are_printed(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    code, out, err = run(capsys, bundle)
    assert code == NO_CONVERTER == 3
    assert out.splitlines() == [
        f"cd {bundle.resolve()}",
        (
            "converter_lite --fmk=ONNX --optimize=ascend_oriented --saveType=MINDIR "
            "--modelFile=decode/model.onnx --outputFile=decode/decode "
            "--configFile=decode/converter.ini"
        ),
    ]
    assert "copy the bundle to the NPU host" in err
    assert re.search(
        r"decode .* of weights, .* if it grows as those published for Qwen3\.5-4B", err
    )
    assert run(capsys, bundle / "no")[0] == 1
    assert run(capsys, bundle, "--converter", "/no")[0] == 2


def test_a_folder_with_a_space_is_quoted_in_what_is_to_be_typed(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaced = bundle.rename(tmp_path / "my out")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert run(capsys, spaced)[1].startswith(f"cd '{spaced.resolve()}'\n")
    install_converter(tmp_path / "bin", monkeypatch)
    code, _, err = run(capsys, spaced)
    assert code == 0
    assert err.endswith(f"q35chat --model-dir '{spaced}'\n")


def test_with_one_its_progress_is_shown_and_the_end_says_what_next(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool = install_converter(tmp_path / "bin", monkeypatch)

    code, _, err = run(capsys, bundle, "--drop-onnx")
    assert code == 0
    assert f"converting with {tool}" in err
    assert "decode: decode/decode_graph.mindir recorded" in err
    assert err.endswith(f"q35chat --model-dir {bundle}\n")
    assert "\nchat with it: " in err
    code, _, err = run(capsys, bundle)
    assert code == 0
    assert "is converted already" in err


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The converter's stand-in, and a home without a trial."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(install_converter(tmp_path / "bin", monkeypatch))


def keep_trial(tool: str, kernels: str | None = "ordered-inputs", **other: str) -> None:
    place = replace(TrialPlace.here(os.environ, None, tool), **other)
    KernelTrial(kernels, "/somewhere/report.json", place).keep()


def way(bundle: Path) -> object:
    return Bundle.open(bundle).manifest.options["decode"]["kernels"]


def test_the_way_that_doctor_has_found_on_this_machine_is_taken_and_said_in_one_line(
    bundle: Path, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_trial(tool)
    code, _, err = run(capsys, bundle)

    assert (code, way(bundle)) == (0, "ordered-inputs")
    said = "kernels ordered-inputs, as /somewhere/report.json says; --kernels gives others"
    assert said in err.splitlines()
    assert run(capsys, bundle, "--kernels", "")[0] == 0
    assert way(bundle) == ""


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        ({"packages": "/other"}, "with another CANN, package or converter: `doctor --operators`"),
        ({"cann": "7.0"}, "with another CANN, package or converter: `doctor --operators`"),
        ({"kernels": None}, "a kernel worked in no way, as /somewhere/report.json says"),
        ({"host": "another"}, None),
    ],
)
def test_what_was_found_with_something_else_is_not_taken(
    bundle: Path,
    tool: str,
    capsys: pytest.CaptureFixture[str],
    trial: dict[str, Any],
    said: str | None,
) -> None:
    keep_trial(tool, **trial)
    code, _, err = run(capsys, bundle)

    assert (code, way(bundle)) == (0, "")
    assert said is None or said in err
    assert (said is None) == ("kernel" not in err)


@pytest.mark.parametrize("content", ["", "[]", '{"kernels": 3}', '{"kernels": "", "report": "r"}'])
def test_a_trial_that_cannot_be_read_is_none(
    bundle: Path, tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    keep_trial(tool)
    (file,) = (tmp_path / "state").rglob("npu-kernels.json")
    file.write_text(content, encoding="utf-8")

    assert run(capsys, bundle)[0] == 0
    assert way(bundle) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mixed-list", __file__], "--precision-mode allow_mix_precision"),
        (["--plugin-custom-ops", "All;x=1"], "names with commas"),
        (["--precision-mode", "fast"], "force_fp32"),
    ],
)
def test_wrong_compiler_settings_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = run(capsys, tmp_path, *arguments)

    assert (code, out) == (2, "")
    assert said in err
