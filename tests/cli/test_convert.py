from __future__ import annotations

from pathlib import Path

import pytest

from q35chat import cli
from q35chat.commands.convert import NO_CONVERTER, convert_bundle
from tests.cli.bundles import export_bundle
from tests.cli.scripted import recorded
from tests.support.converter import install_converter


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return export_bundle(
        tmp_path,
        target="ascend-310p",
        max_seq_len=32,
        gears=(16,),
        image_gears=(4,),
        component="decode",
    )


def test_without_a_converter_the_commands_are_printed(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    seen = recorded()

    assert convert_bundle(bundle, seen.console) == NO_CONVERTER == 3
    assert seen.out.getvalue().splitlines() == [
        f"cd {bundle.resolve()}",
        (
            "converter_lite --fmk=ONNX --optimize=ascend_oriented --saveType=MINDIR "
            "--modelFile=decode/model.onnx --outputFile=decode/decode "
            "--configFile=decode/converter.ini"
        ),
    ]
    assert "copy the bundle to the NPU host" in seen.err.getvalue()


def test_a_folder_with_a_space_is_quoted_in_what_is_to_be_typed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = bundle.rename(tmp_path / "my out")
    seen, done = recorded(), recorded()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        convert_bundle(spaced, seen.console)
    assert seen.out.getvalue().startswith(f"cd '{spaced.resolve()}'\n")
    install_converter(tmp_path / "bin", monkeypatch)
    assert convert_bundle(spaced, done.console) == 0
    assert done.err.getvalue().endswith(f"q35chat --model-dir '{spaced}'\n")


def test_with_one_its_progress_is_shown_and_the_end_says_what_next(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = install_converter(tmp_path / "bin", monkeypatch)
    seen = recorded()

    assert convert_bundle(bundle, seen.console, drop_onnx=True) == 0
    text = seen.err.getvalue()
    assert f"converting with {tool}" in text
    assert "decode: decode/decode_graph.mindir recorded" in text
    assert text.endswith(f"q35chat --model-dir {bundle}\n")
    assert "\nchat with it: " in text
    again = recorded()
    assert convert_bundle(bundle, again.console) == 0
    assert "is converted already" in again.err.getvalue()


def test_the_command_line_reaches_it(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert cli.run(["convert", str(bundle)], recorded().console) == 3
    assert cli.run(["convert", str(bundle / "no")], recorded().console) == 1
    assert cli.run(["convert", str(bundle), "--converter", "/no"], recorded().console) == 2
