"""The command that makes a bundle again, from what its manifest tells."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Manifest, Source
from q35chat.commands.export_command import adding, repair
from tests.export.bundles import sample_manifest

OUT = Path("my out")
HUB = "huggingface:Qwen/Qwen3.5-0.8B"


def manifest(options: dict[str, str | int] | None = None, **more: object) -> Manifest:
    text: dict[str, str | int] = {"precision": "int4", "block_size": "auto", "max_seq_len": 64}
    text["rounding"] = "calibrated"
    return replace(sample_manifest(), options={"text": text | (options or {})}, **more)  # type: ignore[arg-type]


def arguments(advice: str) -> list[str]:
    """What a shell makes of the command that is shown."""
    (command,) = [part for part in advice.split("`") if "--out" in part]
    return shlex.split(command)


def test_damage_is_repaired_by_an_export_of_the_same_model_into_the_same_folder() -> None:
    given = arguments(repair(manifest(), OUT))
    assert given[:3] == ["q35chat", "export", "Qwen/Qwen3.5-0.8B"]
    assert given[3:] == ["--precision", "int4", "--max-seq-len", "64", "--out", "my out", "--force"]


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (manifest(precision="int8"), ["--precision int8"]),
        (manifest({"block_size": 64}), ["--block-size 64"]),
        (manifest({"mtp": "head"}), ["--mtp"]),
        (manifest({"bits": "5.5"}), ["--bits 5.5"]),
        (manifest({"rounding": "nearest"}), ["--no-calibrate"]),
        (sample_manifest(), ["--block-size 32 --no-calibrate"]),
        (manifest(capacity=4096), ["--max-seq-len 4096"]),
        (
            manifest(source=Source("Qwen/Qwen3.5-0.8B", "v1", f"{HUB}@abc")),
            ["export Qwen/Qwen3.5-0.8B --revision v1 "],
        ),
        (
            manifest(source=Source("Qwen/Qwen3.5-0.8B", "d1", "modelscope:Qwen/Qwen3.5-0.8B@d1")),
            ["export Qwen/Qwen3.5-0.8B --source modelscope "],
        ),
        (
            manifest(
                {"gears": "16,32", "image_gears": "4", "cache": "growing", "delta_rule": "unfused"},
                target="ascend-310p",
                precision="fp16",
            ),
            ["--target ascend-310p --dtype fp16 --gears 16,32 --image-gears 4 ",
             "--no-fused-prefill --no-fused-decode "],
        ),
    ],
)  # fmt: skip
def test_the_options_that_a_bundle_has_are_named(known: Manifest, wanted: list[str]) -> None:
    advice = repair(known, OUT)
    assert [words for words in wanted if words not in advice] == []


def test_a_folder_that_nobody_knows_is_described_and_no_other_model_named() -> None:
    known = manifest(source=Source("demo-model", None, "folder:abc"))
    advice = repair(known, OUT)
    assert advice.startswith("export it from the folder of its checkpoint, demo-model, with `")
    assert "q35chat export" not in advice
    assert arguments(advice)[-3:] == ["--out", "my out", "--force"]


def test_a_component_is_added_from_the_model_that_is_known() -> None:
    known = manifest(source=Source("demo-model", None, "folder:abc"), precision="int8")
    advice = adding(known, "vision", OUT, "a b/demo-model")
    assert arguments(advice) == [
        "q35chat", "export", "a b/demo-model", "--precision", "int8", "--out", "my out",
        "--component", "vision",
    ]  # fmt: skip


def test_the_head_and_the_capacity_are_none_of_the_vision_graphs_business() -> None:
    advice = adding(manifest({"mtp": "head"}), "vision", OUT)
    assert "--mtp" not in advice
    assert "--max-seq-len" not in advice
