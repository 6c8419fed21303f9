from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.errors import ExportError
from q35export.converter_config import GraphInputs, config_text, gears, read_inputs
from tests.doubles.fake_converter import sections

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
        'ge.dynamicDims="32,32,32,16;32,32,32,64;512,512,512,16;512,512,512,64"\n'
    )


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
