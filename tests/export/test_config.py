"""Numbers of `config.json` that no model has are refused where they are read."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from q35chat.errors import CheckpointError
from q35export.config import load_config, parse_config
from tests.support.checkpoints import make_checkpoint

WRONG: list[object] = [-1, 1.5, 10**12, 10**30, 10**400, float("inf"), float("nan"), "x", [], {}]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "plain")
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def numbers(value: object, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """Where numbers stand below `value`."""
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(child, *path, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def changed(raw: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    found: Any = copy.deepcopy(raw)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return dict(found)


def refusal(raw: dict[str, Any]) -> str:
    """Why `raw` is refused; empty where it is not."""
    try:
        parse_config(raw)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:12])
def test_any_number_is_read_or_refused_on_one_line_that_names_its_field(
    raw: dict[str, Any], value: object
) -> None:
    refused = {path: refusal(changed(raw, path, value)) for path in numbers(raw)}
    lines = {path: line for path, line in refused.items() if line}
    assert len(lines) > 20
    assert all(line.isprintable() and len(line) < 250 for line in lines.values())
    if isinstance(value, int | float) and value > 10**10:
        for path, line in lines.items():
            *sections, field = (part for part in path if isinstance(part, str))
            where = ": ".join(["config.json", *sections, f"field '{field}' must be a "])
            assert re.match(rf"{where}.*number from .*; download", line)


@pytest.mark.parametrize("name", ["num_hidden_layers", "full_attention_interval"])
@pytest.mark.parametrize("value", [0, 10**12])
def test_layers_that_are_not_named_are_counted_within_bounds(
    raw: dict[str, Any], name: str, value: int
) -> None:
    text = raw["text_config"] | {"layer_types": None, name: value}
    with pytest.raises(CheckpointError, match=f"'{name}' must be a whole number from 1 to 512"):
        parse_config(raw | {"text_config": text})


@pytest.mark.parametrize("content", ["[" * 20_000, "", "[1]", '{"a": ' + "9" * 5000 + "}"])
def test_a_config_that_cannot_be_parsed_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json.*download the checkpoint") as error:
        load_config(tmp_path)
    assert "\n" not in str(error.value)


def test_a_pipe_in_place_of_the_config_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="a pipe or a device, not a file"):
        load_config(tmp_path)


def test_a_strange_kind_of_model_is_named_in_short() -> None:
    with pytest.raises(CheckpointError) as error:
        parse_config({"model_type": "x" * 10_000})
    assert len(str(error.value)) < 200
