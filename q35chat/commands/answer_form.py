"""The form that an answer is to have, a JSON schema or a grammar: read from a file, and given to
the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from q35chat.errors import UsageError
from q35chat.text import readable_size, safe_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from q35chat.chat.turn.grammar import AnswerForm
    from q35chat.commands.model import LoadedModel

_MOST_BYTES: Final = 1_000_000
_SCHEMA, _GRAMMAR = "--schema", "--grammar"


def read_form(schema: Path | None, grammar: Path | None) -> AnswerForm | None:
    """The form in one of two files; None where there is none. Raises UsageError for both, and for a
    file that cannot be read or holds no form."""
    if schema is not None and grammar is not None:
        raise UsageError(f"{_SCHEMA} and {_GRAMMAR} are two forms of one answer; give one")
    if grammar is not None:
        return _read_grammar(grammar)
    return None if schema is None else _read_schema(schema)


def obeying(model: LoadedModel, form: AnswerForm) -> LoadedModel:
    """The model, whose answers have the form. Raises UsageError for a form that cannot be kept, and
    for a model that is elsewhere: its tokens cannot be chosen here."""
    from q35chat.chat.engine import ChatEngine

    if not isinstance(model.backend, ChatEngine):
        option = _GRAMMAR if isinstance(form, str) else _SCHEMA
        raise UsageError(f"{option} is for a bundle on this machine; drop it or --endpoint")
    return replace(model, backend=model.backend.obeying(form))


def _read_schema(path: Path) -> Mapping[str, Any]:
    from q35chat.json_reader import parse_json

    name = f"{_SCHEMA} {safe_line(str(path))}"
    try:
        schema = parse_json(_read(path, name))
    except ValueError as error:
        raise UsageError(f"{name} is not JSON ({safe_line(str(error))})") from error
    if not isinstance(schema, dict):
        raise UsageError(f'{name} holds no schema, which is an object like {{"type": ...}}')
    return schema


def _read_grammar(path: Path) -> str:
    name = f"{_GRAMMAR} {safe_line(str(path))}"
    try:
        grammar = _read(path, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8; convert it") from error
    if not grammar.strip():
        raise UsageError(f'{name} holds no grammar, which has a rule like start: "yes" | "no"')
    return grammar


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{name} is over the limit of {readable_size(_MOST_BYTES)}")
    return data
