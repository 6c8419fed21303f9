"""The JSON schema that an answer is to obey: read from a file, and given to the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from q35chat.errors import UsageError
from q35chat.text import readable_size, safe_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from q35chat.commands.model import LoadedModel

_MOST_BYTES: Final = 1_000_000


def read_schema(path: Path) -> Mapping[str, Any]:
    """The schema in a file. Raises UsageError for a file that cannot be read or holds none."""
    from q35chat.json_reader import parse_json

    name = safe_line(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--schema {name} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"--schema {name} is over the limit of {readable_size(_MOST_BYTES)}")
    try:
        schema = parse_json(data)
    except ValueError as error:
        raise UsageError(f"--schema {name} is not JSON ({safe_line(str(error))})") from error
    if not isinstance(schema, dict):
        raise UsageError(
            f'--schema {name} holds no schema, which is an object like {{"type": ...}}'
        )
    return schema


def obeying(model: LoadedModel, schema: Mapping[str, Any]) -> LoadedModel:
    """The model, whose answers obey the schema. Raises UsageError for a schema that cannot be kept,
    and for a model that is elsewhere: its tokens cannot be chosen here."""
    from q35chat.chat.engine import ChatEngine

    if not isinstance(model.backend, ChatEngine):
        raise UsageError("--schema is for a bundle on this machine; drop it or --endpoint")
    return replace(model, backend=model.backend.obeying(schema))
