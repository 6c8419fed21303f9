"""The converter: its command, its configuration, what its log says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.ascend.ports import manifest_gears, read_gears
from q35chat.errors import ExportError
from q35export.ascend.converter import ConversionJob, Converter, explain, run_converter
from q35export.ascend.converter_config import (
    GraphInputs,
    config_text,
    gears,
    read_inputs,
    shapes,
)
from q35export.ascend.graphs.options import DEFAULT_GEARS
from q35export.request import DEFAULT_IMAGE_GEARS
from tests.doubles.fake_converter import sections


def test_a_converter_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    job = ConversionJob(
        "decode", *(tmp_path / name for name in ("model.onnx", "config", "out", "log"))
    )

    with pytest.raises(ExportError, match="the tool does not start: No such file or directory"):
        run_converter(Converter((str(tmp_path / "gone"),), "the tool"), job, lambda: None)


PREFILL = GraphInputs(
    {
        "input_ids": (1, "T"),
        "attention_mask": (1, "T"),
        "position_ids": (4, 1, "T"),
        "image_embeds": ("M", 2560),
        "past_len": (1,),
    },
    {"q35chat.gears": "32,512", "q35chat.image_gears": "16,64"},
)
GROWING = GraphInputs(
    {"attention_mask": (1, "past + 1"), "past_kv_cache": (2, 1, 4, "past", 8)}, {}
)


def test_a_prefill_lists_every_input_and_its_gears_in_order() -> None:
    assert config_text(PREFILL, 4) == (
        "[acl_init_options]\n"
        "ge.exec.precision_mode=force_fp32\n"
        "\n"
        "[acl_build_options]\n"
        'input_format="ND"\n'
        'input_shape="input_ids:1,-1;attention_mask:1,-1;position_ids:4,1,-1;'
        'image_embeds:-1,2560;past_len:1"\n'
        'ge.dynamicDims="32,32,32,32;512,512,512,64"\n'
    )


def gears_of(lengths: str, pictures: str, graph: GraphInputs = PREFILL) -> GraphInputs:
    return replace(graph, metadata={"q35chat.gears": lengths, "q35chat.image_gears": pictures})


def test_the_usual_prefill_has_four_gears_with_no_more_rows_than_tokens() -> None:
    usual = gears_of(",".join(map(str, DEFAULT_GEARS)), ",".join(map(str, DEFAULT_IMAGE_GEARS)))
    found = [(gear["T"], gear["M"]) for gear in gears(usual, 4)]

    assert found == [(32, 32), (512, 256), (1024, 256), (2048, 256)]


@pytest.mark.parametrize(
    ("lengths", "pictures"),
    [("32,512", "16,64"), ("16,64", "16"), ("1,2,2048", "1,256,4096")],
)
def test_the_gears_in_the_file_the_manifest_and_the_engine_are_the_same(
    lengths: str, pictures: str
) -> None:
    input_shape, dynamic_dims = shapes(gears_of(lengths, pictures), 4)

    told = read_gears(input_shape, dynamic_dims, {})
    assert told == manifest_gears("prefill", lengths, pictures, 4)
    assert all(gear["image_embeds", 0] <= gear["input_ids", 1] for gear in told)


def test_a_step_of_several_tokens_has_a_gear_for_each_number_of_them() -> None:
    decode = GraphInputs({"input_ids": (1, "T"), "attention_mask": (1, 64)}, {})
    written = shapes(gears_of("1,2,3", "16", decode), 4)

    assert written == ("input_ids:1,-1;attention_mask:1,64", "1;2;3")


def test_a_single_gear_is_written_into_the_shapes() -> None:
    text = config_text(gears_of("32", "16,64"), 4)

    assert text.endswith(
        'input_shape="input_ids:1,32;attention_mask:1,32;position_ids:4,1,32;image_embeds:32,2560;'
        'past_len:1"\n'
    )
    vision = GraphInputs({"pixel_values": ("P", 1536), "patch_mask": (1, "P")}, {})
    assert shapes(gears_of("", "16", vision), 4) == ("pixel_values:64,1536;patch_mask:1,64", "")


def test_more_gears_than_can_be_compiled_are_refused() -> None:
    shapes(gears_of(",".join(map(str, range(1, 101))), "16"), 4)

    with pytest.raises(ExportError, match="has 101 gears, the converter takes 100: export with"):
        shapes(gears_of(",".join(map(str, range(1, 102))), "16"), 4)


def test_the_converters_reader_understands_it(tmp_path: Path) -> None:
    file = tmp_path / "converter.ini"
    file.write_text(config_text(PREFILL, 4), encoding="ascii")

    read = sections(file)
    assert list(read) == ["acl_init_options", "acl_build_options"]
    assert read["acl_build_options"]["input_format"] == "ND"
    assert "'" not in file.read_text(encoding="ascii")


def test_pictures_have_gears_of_patches() -> None:
    vision = GraphInputs({"pixel_values": ("P", 1536), "patch_mask": (1, "P")},
                         {"q35chat.image_gears": "16,64"})  # fmt: skip

    assert gears(vision, 4) == [{"P": 64}, {"P": 256}]
    assert 'ge.dynamicDims="64,64;256,256"' in config_text(vision, 4)


def test_a_graph_of_fixed_shapes_gets_none() -> None:
    fixed = GraphInputs({"input_ids": (1, 1), "attention_mask": (1, 64)}, {})

    assert config_text(fixed, 4) == "[acl_init_options]\nge.exec.precision_mode=force_fp32\n"


def test_a_growing_cache_gets_shapes_without_gears() -> None:
    text = config_text(GROWING, 4)

    assert 'input_shape="attention_mask:1,-1;past_kv_cache:2,1,4,-1,8"' in text
    assert "dynamicDims" not in text


def test_more_axes_than_the_converter_takes_are_refused() -> None:
    many = GraphInputs({f"x{n}": (1, "T") for n in range(65)}, {})

    with pytest.raises(ExportError, match="130 axes, the converter takes 128"):
        config_text(many, 4)


def test_a_file_that_is_no_graph_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 10)

    with pytest.raises(ExportError, match=r"model\.onnx cannot be read as ONNX") as error:
        read_inputs(tmp_path / "model.onnx")
    assert "\n" not in str(error.value)


LITE = (
    "[ERROR] LITE(7,7f1c,converter_lite):2026-01-01-00:00:00.1 "
    "[mindspore-lite/tools/converter/converter.cc:1065] RunConvert] Convert graph meta failed\n"
)
CANN = (
    "[ERROR] GE(7,converter_lite):2026-01-01-00:00:00.1 [infershape_pass.cc:90]7 Run: "
    "ErrorNo: 1343225860(Parameter's invalid!) shape of node MatMul_3 is wrong\n"
)
WARNING = "[WARNING] LITE(7,7f1c,converter_lite):t [numa.cc:35] Open] Open libnuma.so failed!\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (WARNING + LITE, "Convert graph meta failed; for CANN's own messages set ASCEND_SLOG"),
        (CANN + LITE, "ErrorNo: 1343225860(Parameter's invalid!) shape of node MatMul_3 is wrong"),
        (WARNING, "exit code 1: [WARNING] LITE(7,7f1c,converter_lite):t [numa.cc:35] Open] Open"),
        ("", "exit code 1; for CANN's own messages set ASCEND_SLOG_PRINT_TO_STDOUT=1"),
    ],
)
def test_an_unknown_failure_is_told_by_its_first_error(log: str, cause: str) -> None:
    assert explain(log, 1).startswith(cause)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "[ERROR] GE(7,x):t [engine.cc:1]7 Get: EZ3003: no kernel for [ChunkGatedDeltaRule]",
            "a Custom operator has no kernel: install its vendor package",
        ),
        (
            "E19010: No parser is registered for Op [Custom_1, optype RecurrentGatedDeltaRule]",
            "a Custom operator has no kernel: install its vendor package",
        ),
        (
            "ModuleNotFoundError: No module named 'decorator'",
            "compiles with has no module decorator",
        ),
        (
            "the cmd python3-config --prefix, Unable to load a valid Python SO",
            "first python3 on PATH",
        ),
        ("dlopen libascend_acl_plugin.so failed: libgraph.so", "CANN or the NPU was not found"),
        ("Get soc version failed", "CANN or the NPU was not found"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("what():  std::bad_alloc", "the converter ran out of memory"),
        ("SetGraphInputShape] names differ", "did not take the shapes or gears"),
    ],
)
def test_known_lines_have_their_advice(line: str, advice: str) -> None:
    assert advice in explain(WARNING + line + "\n", 1)


@pytest.mark.parametrize("code", [-9, 137])
def test_a_process_that_was_killed_had_no_memory(code: int) -> None:
    assert "ran out of memory" in explain("", code)
