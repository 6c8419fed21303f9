"""The manifest of a bundle, `q35chat.json`: its values and its strict reader.

Knows the fields and their types. Must not know folders, graphs or who writes the files it lists;
imports nothing heavy, because every command reads a manifest before it does anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from q35chat.errors import BundleError

SCHEMA = 1

OptionValue = str | int

_REPAIR = "export its model into this folder again, with --force"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights came from: hub id or folder name, commit if known, and a fingerprint."""

    name: str
    revision: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a runtime must know of the model and cannot read from the graphs' shapes.

    `position_grid_side` is the side of the square table of learned picture positions.
    """

    vocab_size: int
    hidden_size: int
    image_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    position_grid_side: int
    layer_types: tuple[str, ...]
    num_hidden_layers: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and lower-case hexadecimal SHA-256 of one file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One exported bundle.

    `capacity` (KV slots) and `precision` are those of the text graph, for display: a graph's own
    shapes decide. `options` holds, by component, what it was exported with; `graphs` maps a graph's
    name to its file and `files` every other file of the bundle to its size and digest, both as
    paths relative to the bundle with `/` between the parts.
    """

    exporter: str
    created: str
    source: Source
    target: str
    precision: str
    capacity: int
    options: Mapping[str, Mapping[str, OptionValue]]
    model: ModelFacts
    graphs: Mapping[str, str]
    files: Mapping[str, FileEntry]
    schema: int = SCHEMA

    def to_json(self) -> str:
        """The text of `q35chat.json`, `schema` first, files sorted by path."""
        fields = {"schema": self.schema} | asdict(self)
        fields["files"] = {name: asdict(self.files[name]) for name in sorted(self.files)}
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "q35chat.json") -> Manifest:
        """Read a manifest; `where` names the file in messages.

        Raises BundleError for text that is not JSON, another schema version, a missing field or
        one of the wrong type.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BundleError(f"{where} is not valid JSON ({error}); {_REPAIR}") from None
        return _manifest(_Fields(data, where))


class _Fields:
    """Typed access to one JSON object; `where` leads to it in messages."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise BundleError(f"{where} must be an object, found {type(data).__name__}")
        self._data: dict[str, Any] = data
        self.where = where

    def names(self) -> list[str]:
        return list(self._data)

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(name, "a whole number of at least 0", value)
        return value

    def option(self, name: str) -> OptionValue:
        return self.text(name) if isinstance(self._get(name), str) else self.number(name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(name, "a list of texts", value)
        return tuple(value)

    def section(self, name: str) -> _Fields:
        value = self._get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return _Fields(value, f"{self.where}: {name}")

    def _get(self, name: str) -> object:
        if name not in self._data:
            raise BundleError(f"{self.where} lacks the field {name!r}; {_REPAIR}")
        return self._data[name]

    def _wrong(self, name: str, wanted: str, value: object) -> BundleError:
        return BundleError(
            f"{self.where}: field {name!r} must be {wanted}, found {json.dumps(value)[:60]}; "
            f"{_REPAIR}"
        )


def _manifest(fields: _Fields) -> Manifest:
    schema = fields.number("schema")
    if schema != SCHEMA:
        raise BundleError(
            f"{fields.where} has schema version {schema}, this q35chat reads version {SCHEMA}; "
            + ("update q35chat" if schema > SCHEMA else _REPAIR)
        )
    options, graphs, files = (fields.section(name) for name in ("options", "graphs", "files"))
    return Manifest(
        exporter=fields.text("exporter"),
        created=fields.text("created"),
        source=_source(fields.section("source")),
        target=fields.text("target"),
        precision=fields.text("precision"),
        capacity=fields.number("capacity"),
        options={name: _options(options.section(name)) for name in options.names()},
        model=_model(fields.section("model")),
        graphs={name: graphs.text(name) for name in graphs.names()},
        files={name: _file(files.section(name)) for name in files.names()},
    )


def _source(fields: _Fields) -> Source:
    return Source(
        name=fields.text("name"),
        revision=fields.text_or_none("revision"),
        fingerprint=fields.text("fingerprint"),
    )


def _options(fields: _Fields) -> dict[str, OptionValue]:
    return {name: fields.option(name) for name in fields.names()}


def _file(fields: _Fields) -> FileEntry:
    return FileEntry(size=fields.number("size"), sha256=fields.text("sha256"))


def _model(fields: _Fields) -> ModelFacts:
    return ModelFacts(
        vocab_size=fields.number("vocab_size"),
        hidden_size=fields.number("hidden_size"),
        image_token_id=fields.number("image_token_id"),
        vision_start_token_id=fields.number("vision_start_token_id"),
        vision_end_token_id=fields.number("vision_end_token_id"),
        patch_size=fields.number("patch_size"),
        temporal_patch_size=fields.number("temporal_patch_size"),
        spatial_merge_size=fields.number("spatial_merge_size"),
        position_grid_side=fields.number("position_grid_side"),
        layer_types=fields.texts("layer_types"),
        num_hidden_layers=fields.number("num_hidden_layers"),
    )
