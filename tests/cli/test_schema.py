"""An answer that obeys a JSON schema."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.commands.ask import AskOptions, SamplingOptions, ask_once
from q35chat.commands.schema import read_schema
from q35chat.errors import UsageError
from tests.cli.scripted import EventBackend, loaded, recorded, turn_events
from tests.support.exported import random_bundle

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "tame": {"type": "boolean"}},
    "required": ["kind", "tame"],
    "additionalProperties": False,
}


def file_of(folder: Path, text: str) -> Path:
    path = folder / "schema.json"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is not JSON"), ("[]", "holds no schema"), ("x" * 1_000_001, "is over the limit")],
)
def test_a_file_that_holds_no_schema_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_schema(file_of(tmp_path, text))
    with pytest.raises(UsageError, match="cannot be read"):
        read_schema(tmp_path / "none.json")


def test_a_model_elsewhere_cannot_be_held_to_a_schema(tmp_path: Path) -> None:
    options = AskOptions("Hi", model_dir=Path("model"), schema=file_of(tmp_path, "{}"))
    load = lambda choice, threads: loaded(EventBackend(turn_events("x")))  # noqa: E731
    with pytest.raises(UsageError, match="--schema is for a bundle on this machine"):
        ask_once(options, recorded().console, load)


def test_whatever_a_model_would_say_its_answer_obeys_the_schema(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bundle = random_bundle(tmp_path_factory)
    options = AskOptions(
        "Which animal?",
        model_dir=bundle,
        schema=file_of(tmp_path, json.dumps(SCHEMA)),
        max_new_tokens=60,
        keep=False,
        sampling=SamplingOptions(seed=3),
    )
    seen = recorded()
    assert ask_once(options, seen.console) == 0
    answer = json.loads(seen.out.getvalue())
    assert answer.keys() == {"kind", "tame"}
    assert answer["kind"] in {"cat", "dog"}
    wrong = replace(options, schema=file_of(tmp_path, '{"type": "nonsense"}'))
    with pytest.raises(UsageError, match="the JSON schema cannot be kept"):
        ask_once(wrong, recorded().console)
