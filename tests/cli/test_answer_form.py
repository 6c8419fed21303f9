"""An answer that obeys a JSON schema or a grammar."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.commands.answer_form import read_form
from q35chat.commands.ask import AskOptions, SamplingOptions, ask_once
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
        read_form(file_of(tmp_path, text), None)
    with pytest.raises(UsageError, match="cannot be read"):
        read_form(tmp_path / "none.json", None)


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


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\xff", "is not UTF-8"), (b" \n", "holds no grammar"), (b"x" * 1_000_001, "over the limit")],
)
def test_a_file_that_holds_no_grammar_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "grammar.lark"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f"--grammar .*{said}"):
        read_form(None, path)
    with pytest.raises(UsageError, match="--schema and --grammar are two forms"):
        read_form(path, path)


@pytest.mark.parametrize("budget", [None, 6])
def test_whatever_a_model_would_say_its_answer_is_a_text_of_the_grammar(
    budget: int | None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path / "grammar.lark"
    path.write_text('start: "move " WHERE\nWHERE: /(north|south) [1-9]/\n', "utf-8")
    options = AskOptions(
        "Where?",
        model_dir=random_bundle(tmp_path_factory),
        grammar=path,
        thinking_budget=budget,
        max_new_tokens=40,
        keep=False,
        sampling=SamplingOptions(seed=3),
    )
    seen = recorded()
    assert ask_once(options, seen.console) == 0
    assert re.fullmatch("move (north|south) [1-9]", seen.out.getvalue().strip())
    path.write_text("start: nowhere\n", "utf-8")
    with pytest.raises(UsageError, match=r"the grammar cannot be kept: .*unknown name") as refused:
        ask_once(options, recorded().console)
    assert "\n" not in str(refused.value)


def test_a_bundle_whose_vocabulary_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("q35chat.chat.turn.grammar.token_bytes", lambda *_: b"\xe2\x96\x81")
    path = tmp_path / "grammar.lark"
    path.write_text('start: "yes"\n', "utf-8")
    options = AskOptions(
        "Well?", model_dir=random_bundle(tmp_path_factory), grammar=path, keep=False
    )
    with pytest.raises(
        UsageError, match="the vocabulary of this bundle spells no bytes"
    ) as refused:
        ask_once(options, recorded().console)
    assert "\n" not in str(refused.value)
