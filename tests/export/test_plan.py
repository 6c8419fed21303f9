from __future__ import annotations

from pathlib import Path

import pytest

from q35export.config import parse_config
from q35export.plan import chat_memory
from q35export.request import default_target
from tests.support.checkpoints import SHAPES
from tests.support.shapes import config as raw_config


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_chat_needs_two_buffers_of_each_state_and_one_kv_cache(shape: str) -> None:
    spec = SHAPES[shape]
    text = parse_config(raw_config(spec, dtype="float32", with_mtp=False)).text
    linear, full = spec.layers.count("L"), spec.layers.count("F")
    conv = spec.conv_channels * (spec.kernel - 1) * 4
    recurrent = spec.nv * spec.dk * spec.dv * 4
    memory = chat_memory(text, 100, weights=12345)
    assert memory.states == linear * 2 * (conv + recurrent)
    assert memory.kv_cache == full * 2 * spec.kv_heads * 100 * spec.head_dim * 4
    assert memory.total == 12345 + memory.states + memory.kv_cache


def test_an_npu_is_found_by_its_device_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "davinci_manager").touch()
    assert default_target(tmp_path) == "cpu"
    (tmp_path / "davinci0").touch()
    assert default_target(tmp_path) == "ascend-310p"


def test_an_npu_is_found_by_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "npu-smi").touch(mode=0o755)
    assert default_target(tmp_path) == "ascend-310p"
