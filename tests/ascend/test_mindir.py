from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from q35chat.ascend.diagnosis import KERNELS
from q35chat.bundle.bundle import MANIFEST_NAME, Bundle
from q35chat.errors import BundleError, ExportError, UsageError
from q35export.ascend import lite_worker
from q35export.ascend.converter import find_converter
from q35export.ascend.converter_config import CompilerSettings
from q35export.ascend.forms import KernelForms
from q35export.ascend.mindir import convert, converted_graph
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from q35export.staging import exclusive
from tests.export.bundles import names
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter, vendor
from tests.support.exported import export_bundle
from tests.support.imports import ROOT

CONVERTED = {
    "vision": "vision/vision_graph.mindir",
    "prefill": "prefill/prefill_graph.mindir",
    "decode": "decode/decode_graph.mindir",
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    checkpoint = make_checkpoint(folder / "checkpoint", seed=5)
    export(request(checkpoint, folder / "out"), PlainReporter(sys.stderr))
    return folder


def request(
    checkpoint: Path, out: Path, component: str = "all", *, force: bool = False
) -> ExportRequest:
    return ExportRequest(
        str(checkpoint), out, target="ascend-310p", max_seq_len=32, gears=(8, 16),
        image_gears=(4,), component=component, force=force,
    )  # fmt: skip


@pytest.fixture
def out(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported / "out", tmp_path / "out"))


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_converter(tmp_path / "bin", monkeypatch)


def reporter() -> PlainReporter:
    return PlainReporter(io.StringIO())


def test_every_graph_is_converted_and_recorded(out: Path, tool: Path) -> None:
    result = convert(out, find_converter(), reporter())

    assert (result.status, result.converted) == ("converted", ("vision", "prefill", "decode"))
    bundle = Bundle.open(out, check="full")
    assert bundle.manifest.graphs == CONVERTED
    assert "decode/decode_variables/data_0" in bundle.manifest.files
    assert "decode/model.onnx" in bundle.manifest.files
    assert not list(out.rglob(".converting"))


def test_a_graph_under_a_gibibyte_is_one_file(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_WHOLE", "1")
    convert(out, find_converter(), reporter())

    assert Bundle.open(out).manifest.graphs["decode"] == "decode/decode.mindir"


def test_the_log_has_the_command_and_what_was_printed(out: Path, tool: Path) -> None:
    convert(out, find_converter(), reporter())

    log = (out / "prefill" / "convert.log").read_text(encoding="utf-8")
    assert log.startswith(f"{tool} --fmk=ONNX --optimize=ascend_oriented --saveType=MINDIR ")
    assert "CONVERT RESULT SUCCESS:0" in log


def test_a_second_run_has_nothing_to_do(out: Path, tool: Path) -> None:
    convert(out, find_converter(), reporter())
    tool.unlink()

    assert convert(out, None, reporter()).status == "up-to-date"


def test_a_bundle_that_is_converted_need_not_be_writable(out: Path, tool: Path) -> None:
    convert(out, find_converter(), reporter())
    with exclusive(out):  # as good as a lock that cannot be had
        result = convert(out, None, reporter())
    assert (result.status, set(result.before)) == ("up-to-date", {"vision", "prefill", "decode"})


def test_a_run_goes_on_with_the_graphs_that_are_left(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_ONLY", "vision")
    with pytest.raises(ExportError, match="prefill was not converted"):
        convert(out, find_converter(), reporter())
    assert Bundle.open(out).manifest.graphs["vision"] == CONVERTED["vision"]
    monkeypatch.delenv("FAKE_CONVERTER_ONLY")

    result = convert(out, find_converter(), reporter())
    assert (result.before, result.converted) == (("vision",), ("prefill", "decode"))


def test_a_python_that_cann_cannot_use_is_told_before_anything_is_converted(
    out: Path, tool: Path
) -> None:
    (tool.with_name("python3")).symlink_to("/usr/bin/python3")

    with pytest.raises(ExportError, match=r"CANN 8\.5\.0 compiles with .*no sympy.* --python"):
        convert(out, find_converter(cann="8.5.0"), reporter())
    assert not list(out.rglob("convert.log"))


def test_other_settings_convert_again_and_are_recorded(
    out: Path, tool: Path, tmp_path: Path
) -> None:
    (tmp_path / "mixed.json").write_text("{}", encoding="utf-8")
    convert(out, find_converter(), reporter())
    mixed = CompilerSettings("allow_mix_precision", tmp_path / "mixed.json", "All")

    assert len(convert(out, find_converter(), reporter(), mixed).converted) == 3
    text = (out / "decode" / "converter.ini").read_text(encoding="ascii")
    assert "ge.exec.precision_mode=allow_mix_precision\n" in text
    assert f"ge.exec.modify_mixlist={tmp_path / 'mixed.json'}\n" in text
    assert "[ascend_context]\nplugin_custom_ops=All\n" in text
    assert convert(out, find_converter(), reporter(), mixed).status == "up-to-date"
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_other_forms_of_the_kernels_convert_decode_again_over_the_same_weights(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_BINDS", "position")
    with pytest.raises(ExportError, match="decode was not converted: a Custom operator has no ker"):
        convert(out, find_converter(), reporter())
    forms = KernelForms.parse("ordered-inputs")
    weights = (out / "decode" / "model.bin").stat().st_mtime_ns

    assert convert(out, find_converter(), reporter(), forms=forms).converted == ("decode",)
    bundle = Bundle.open(out, check="full")
    assert bundle.manifest.options["decode"]["kernels"] == "ordered-inputs"
    assert "decode/kernels.onnx" in bundle.manifest.files
    assert (out / "decode" / "model.bin").stat().st_mtime_ns == weights
    assert convert(out, None, reporter(), forms=forms).status == "up-to-date"
    monkeypatch.delenv("FAKE_CONVERTER_BINDS")
    assert convert(out, find_converter(), reporter()).converted == ("decode",)
    assert not (out / "decode" / "kernels.onnx").exists()
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_what_a_prefill_must_not_be_asked_is_recorded_without_converting_it_again(
    out: Path, tool: Path
) -> None:
    convert(out, find_converter(), reporter())
    tool.unlink()
    forms = KernelForms.parse("exact-prefill")

    assert convert(out, None, reporter(), forms=forms).converted == ("prefill",)
    assert Bundle.open(out, check="full").manifest.options["prefill"]["kernels"] == "exact-prefill"
    assert convert(out, None, reporter(), forms=forms).status == "up-to-date"


def test_other_settings_need_the_onnx_files(out: Path, tool: Path) -> None:
    convert(out, find_converter(), reporter(), drop_onnx=True)
    kept = CompilerSettings("must_keep_origin_dtype")

    with pytest.raises(ExportError, match="converted with other settings and its ONNX file was"):
        convert(out, find_converter(), reporter(), kept)


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        ("no-cann", "CANN or the NPU was not found: convert on the NPU host"),
        ("unknown-operator", "does not know Einsum2: use MindSpore Lite 2.9 or newer"),
        ("too-old", "has no Custom operators: use MindSpore Lite 2.9 or newer"),
        ("no-vendor", "install its vendor package and name it in ASCEND_CUSTOM_OPP_PATH"),
        ("disk-full", "the disk is full: free space"),
        ("no-memory", "ran out of memory"),
        ("silent", "vision was not converted: exit code 1"),
    ],
)
def test_known_failures_say_what_to_do(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch, failure: str, advice: str
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_FAILS", failure)
    with pytest.raises(ExportError) as error:
        convert(out, find_converter(), reporter())

    assert advice in str(error.value)
    assert str(error.value).endswith(f"log: {(out / 'vision' / 'convert.log').resolve()}")
    assert Bundle.open(out).manifest.graphs["vision"] == "vision/model.onnx"
    assert not list(out.rglob("*.mindir"))


def test_a_killed_converter_had_no_memory(out: Path, tool: Path) -> None:
    tool.write_text("#!/bin/sh\nkill -9 $$\n", encoding="utf-8")

    with pytest.raises(ExportError, match="vision was not converted: the converter ran out of mem"):
        convert(out, find_converter(), reporter())


def test_success_without_a_file_is_a_failure(out: Path, tool: Path) -> None:
    tool.write_text("#!/bin/sh\necho CONVERT RESULT SUCCESS:0\n", encoding="utf-8")

    with pytest.raises(ExportError, match=r"the converter left no vision\.mindir"):
        convert(out, find_converter(), reporter())


def test_a_file_without_success_is_a_failure(out: Path, tool: Path) -> None:
    tool.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")

    with pytest.raises(ExportError, match="vision was not converted: exit code 0"):
        convert(out, find_converter(), reporter())


def test_onnx_files_can_be_dropped(out: Path, tool: Path) -> None:
    convert(out, find_converter(), reporter(), drop_onnx=True)

    assert not list(out.rglob("*.onnx"))
    assert not list(out.rglob("model.bin"))
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_without_a_converter_the_commands_are_those_that_work(out: Path, tool: Path) -> None:
    result = convert(out, None, reporter())
    assert result.status == "no-converter"
    for command in result.commands:
        assert os.system(f"cd {out} && {command} >/dev/null") == 0

    taken = convert(out, None, reporter())
    assert (taken.status, taken.converted) == ("converted", ("vision", "prefill", "decode"))
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_exporting_one_component_again_leaves_the_others_converted(
    out: Path, tool: Path, exported: Path
) -> None:
    convert(out, find_converter(), reporter())
    again = request(exported / "checkpoint", out, "prefill", force=True)
    export(again, PlainReporter(sys.stderr))

    assert Bundle.open(out).manifest.graphs == CONVERTED | {"prefill": "prefill/model.onnx"}
    assert convert(out, find_converter(), reporter()).converted == ("prefill",)


def test_a_full_disk_is_told_before_the_converter_runs(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(out)
    monkeypatch.setattr(
        "q35export.ascend.mindir.shutil.disk_usage", lambda _: usage._replace(free=1000)
    )

    with pytest.raises(ExportError, match=r"converting vision needs .* KiB .* 1000 B are free"):
        convert(out, find_converter(), reporter())


def test_little_room_is_told_and_tried(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(out)
    size = (out / "decode" / "model.bin").stat().st_size * 2
    monkeypatch.setattr(
        "q35export.ascend.mindir.shutil.disk_usage", lambda _: usage._replace(free=size)
    )
    said = io.StringIO()

    assert convert(out, find_converter(), PlainReporter(said)).status == "converted"
    assert "decode: " in said.getvalue()
    assert "has been seen to take" in said.getvalue()


def test_a_bundle_for_the_cpu_needs_no_conversion(exported: Path, tmp_path: Path) -> None:
    export_bundle(exported / "checkpoint", tmp_path / "cpu", target="cpu")

    with pytest.raises(ExportError, match="is for the target cpu, which needs no conversion"):
        convert(tmp_path / "cpu", None, reporter())


def test_a_tool_that_is_named_must_be_there() -> None:
    with pytest.raises(UsageError, match="--converter /nowhere/tool is no program"):
        find_converter("/nowhere/tool")


def test_the_tool_of_an_unpacked_package_finds_its_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = install_converter(tmp_path / "tools" / "converter" / "converter", monkeypatch)
    (tmp_path / "tools" / "converter" / "lib").mkdir()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("MSLITE_HOME", str(tmp_path))
    found = find_converter()

    assert found is not None
    assert (found.command, found.libraries) == (
        (str(tool),), (tmp_path / "tools" / "converter" / "lib").resolve())  # fmt: skip


def test_without_tool_and_package_there_is_no_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MSLITE_HOME", raising=False)

    assert find_converter() is None


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool, but the stand-in as an installed package."""
    folder = tmp_path / "packages" / "mindspore_lite"
    folder.mkdir(parents=True)
    source = "from tests.doubles.mindspore_lite import *\n"
    source += "from tests.doubles.mindspore_lite.converter import Converter\n"
    (folder / "__init__.py").write_text(source, encoding="utf-8")
    paths = [str(folder.parent), str(ROOT), str(ROOT / "export")]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MSLITE_HOME", raising=False)
    package = vendor(tmp_path / "vendor", *KERNELS)
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(package))


def test_the_python_package_converts_in_a_process_of_its_own(out: Path, package: None) -> None:
    found = find_converter()
    assert found is not None
    assert found.command == (sys.executable, lite_worker.__file__)
    result = convert(out, found, reporter())

    assert result.converted == ("vision", "prefill", "decode")
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_the_python_packages_failures_are_explained_too(
    out: Path, package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_FAILS", "no-cann")

    with pytest.raises(ExportError, match="vision was not converted: CANN or the NPU was not fou"):
        convert(out, find_converter(), reporter())


def test_a_disk_that_filled_up_is_told_whatever_the_log_says(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CONVERTER_FAILS", "silent")
    usage = shutil.disk_usage(out)
    monkeypatch.setattr(
        "q35export.ascend.converter.shutil.disk_usage", lambda _: usage._replace(free=4096)
    )
    monkeypatch.setattr("q35export.ascend.mindir._graph_size", lambda manifest, name: 0)

    with pytest.raises(ExportError, match="vision was not converted: the disk is full: free space"):
        convert(out, find_converter(), reporter())


def test_a_bundle_that_may_not_be_written_is_one_line(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "vision" / "converter.ini").mkdir()  # stands for whatever cannot be written

    with pytest.raises(ExportError, match=r"cannot write .*converter\.ini: Is a directory; make"):
        convert(out, find_converter(), reporter())


@pytest.mark.parametrize(
    "stale",
    [
        ("vision_variables/data_0",),
        ("vision_variables/data_0", "vision_variables/more/data_1"),
        ("vision_graph.mindir",),
        ("vision_graph.mindir/oddly",),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_left_of_half_a_result_is_cleared_away(
    stale: tuple[str, ...], whole: bool, out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in stale:
        (out / "vision" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "vision" / name).write_text("stale")
    if whole:
        monkeypatch.setenv("FAKE_CONVERTER_WHOLE", "1")

    assert "vision" in convert(out, find_converter(), reporter()).converted
    bundle = Bundle.open(out, check="full")
    made = {"vision.mindir"} if whole else {"vision_graph.mindir", "vision_variables"}
    assert {path.name for path in (out / "vision").glob("vision*")} == made
    assert {f"vision/{name}" for name in made} >= {bundle.manifest.graphs["vision"]}
    assert not [path for path in (out / "vision").rglob("*") if path.name in {"data_1", "oddly"}]


def test_a_result_that_was_half_moved_is_no_result(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "vision" / "vision_graph.mindir").write_text("stale")
    move = Path.replace

    def full(path: Path, target: Path) -> Path:
        if path.name == "vision_graph.mindir":
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(ExportError, match=r"cannot write .*graph\.mindir: No space left"):
            convert(out, find_converter(), reporter())
    assert (out / "vision" / "vision_variables" / "data_0").is_file()
    assert converted_graph(out / "vision", "vision") is None

    assert convert(out, find_converter(), reporter()).converted == ("vision", "prefill", "decode")
    assert Bundle.open(out, check="full").manifest.graphs == CONVERTED


def test_a_disk_that_is_full_when_a_result_is_recorded_leaves_the_bundle_clean(
    out: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(out)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ExportError, match=r"cannot write .*out: No space left on device"):
            convert(out, find_converter(), reporter())
    assert names(out) == before
    assert Bundle.open(out).manifest.graphs["vision"] == "vision/model.onnx"
    assert convert(out, find_converter(), reporter()).converted == ("vision", "prefill", "decode")


def test_what_a_killed_run_left_beside_the_manifest_is_cleared(out: Path, tool: Path) -> None:
    before = names(out)
    (out / f".{MANIFEST_NAME}ab_12xyz").write_text("{")
    convert(out, find_converter(), reporter())
    assert names(out) == before


def test_a_bundle_that_is_being_exported_is_not_converted(out: Path, tool: Path) -> None:
    said = rf"an export \(process {os.getpid()}\) is writing {out}"
    with exclusive(out), pytest.raises(ExportError, match=said):
        convert(out, find_converter(cann="8.5.0"), reporter())
    assert not list(out.rglob("convert.log"))


def test_nothing_is_made_beside_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        convert(tmp_path / "no" / "bundle", None, reporter())
    assert names(tmp_path) == []
