"""Options that only one target reads are refused for the other."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.commands.export_worker import estimate
from q35chat.errors import UsageError
from q35export import pipeline
from q35export import request as requests
from q35export.components import builders_for
from q35export.pipeline import export
from q35export.request import COMPONENTS, DEFAULT_IMAGE_GEARS, TARGETS, ExportRequest
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

FOR_CPU: dict[str, Any] = {
    "precision": "int8",
    "block_size": 64,
    "mtp": True,
    "calibrate": False,
    "calibration": Path("text"),
    "bits": 5.0,
    "stream": True,
}
FOR_NPU: dict[str, Any] = {
    "dtype": "fp32",
    "gears": (32,),
    "image_gears": (16,),
    "fused_prefill": False,
    "fused_decode": False,
    "stateless_prefill": True,
    "step_tokens": 4,
}
FOR_BOTH = {
    "model", "out", "source", "revision", "target", "max_seq_len", "component", "force", "dry_run",
    "pictures", "dense",
}  # fmt: skip
CASES = [
    *(("ascend-310p", "cpu", name, value) for name, value in FOR_CPU.items()),
    *(("cpu", "ascend-310p", name, value) for name, value in FOR_NPU.items()),
]


def option(name: str) -> str:
    switch = "no-" if name.startswith(("fused", "calibrate")) else ""
    return f"--{switch}{name.replace('_', '-')}"


@pytest.mark.parametrize(("target", "owner", "name", "value"), CASES)
@pytest.mark.parametrize("detected", [False, True])
def test_an_option_of_the_other_target_is_refused_before_anything_is_read(
    target: str,
    owner: str,
    name: str,
    value: Any,
    detected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "default_target", lambda: target)
    request = replace(
        ExportRequest(str(tmp_path / "no"), tmp_path / "out", target=None if detected else target),
        **{name: value},
    )
    said = f"{option(name)} is for --target {owner}, found {target}: leave it out, or add --target"
    with pytest.raises(UsageError, match=said):
        export(request, Recorder())


@pytest.mark.parametrize(("target", "owner", "name", "value"), CASES)
def test_the_target_that_has_the_option_takes_it(
    target: str, owner: str, name: str, value: Any
) -> None:
    request = replace(ExportRequest(target=owner), **{name: value})
    assert tuple(builders_for(request)) == COMPONENTS[owner]


@pytest.mark.parametrize("target", TARGETS)
def test_defaults_are_for_every_target(target: str) -> None:
    request = ExportRequest(
        target=target, dtype="fp16", image_gears=DEFAULT_IMAGE_GEARS, fused_decode=True
    )
    assert tuple(builders_for(request)) == COMPONENTS[target]


def test_a_default_that_is_named_is_refused_all_the_same() -> None:
    request = ExportRequest(target="ascend-310p", precision="int4")
    with pytest.raises(UsageError, match="--precision is for --target cpu"):
        builders_for(request)


def test_no_option_is_forgotten_here() -> None:
    names = {field.name for field in fields(ExportRequest)}
    assert names == FOR_BOTH | FOR_CPU.keys() | FOR_NPU.keys()


def test_the_setup_screens_estimate_works_where_an_npu_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "default_target", lambda: "ascend-310p")
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain")
    request = ExportRequest(str(checkpoint), tmp_path / "out", precision="int4", max_seq_len=64)
    costs = estimate(request)["costs"]
    assert [cost["precision"] for cost in costs] == ["fp16", "w8a8"]
