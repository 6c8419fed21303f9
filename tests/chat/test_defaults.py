from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.checkpoint import GenerationDefaults
from q35chat.chat.values import SamplingSettings
from q35chat.errors import BundleError


def read(tmp_path: Path, config: Any) -> GenerationDefaults:
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(config))
    return GenerationDefaults.read(tmp_path)


def test_stop_ids_are_one_or_a_list(tmp_path: Path) -> None:
    assert read(tmp_path, {"eos_token_id": [4, 9]}).stop_ids == {4, 9}
    assert read(tmp_path, {"eos_token_id": 4}).stop_ids == {4}


def test_sampling_is_what_the_checkpoint_recommends(tmp_path: Path) -> None:
    config = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None}

    assert read(tmp_path, config).sampling == SamplingSettings(
        temperature=0.6, top_k=20, top_p=0.95
    )


def test_without_sampling_it_is_greedy_and_still_penalised(tmp_path: Path) -> None:
    config = {"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.1}
    sampling = read(tmp_path, config).sampling

    assert (sampling.temperature, sampling.repetition_penalty) == (0.0, 1.1)


def test_a_missing_file_is_greedy_without_stops(tmp_path: Path) -> None:
    defaults = GenerationDefaults.read(tmp_path)

    assert (defaults.stop_ids, defaults.sampling.temperature) == (frozenset(), 0.0)


@pytest.mark.parametrize(
    "config",
    [
        [1],
        {"eos_token_id": ["x"]},
        {"eos_token_id": [float("inf")]},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"temperature": -1},
        {"do_sample": True, "top_k": float("inf")},
        {"top_p": 1.5},
        {"min_p": 1.5},
        {"repetition_penalty": 0},
        {"presence_penalty": float("nan")},
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(BundleError, match=r"cannot read .*generation_config\.json"):
        read(tmp_path, config)


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text('{"eos_token_id": [')

    with pytest.raises(BundleError, match="cannot read"):
        GenerationDefaults.read(tmp_path)
