"""The manifest of a bundle, `q35chat.json`: its values and its strict reader.

Knows the fields and their types. Must not know folders, graphs or who writes the files it lists;
imports nothing heavy, because every command reads a manifest before it does anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import MOST_COUNT, Fields, parse_json
from q35chat.text import json_safe

SCHEMA = 1

OptionValue = str | int
_wrong: Final = partial(BundleError, remedy=Remedy.EXPORT_AGAIN)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights came from: hub id or folder name, commit if known, and a fingerprint."""

    name: str
    revision: str | None
    fingerprint: str


PACKED_EXPERTS: Final = 1.12
"""What quantised experts take in memory for each of their bytes on the disk, as ONNX Runtime packs
them (measured on four layers of 256 experts, block 128)."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a runtime must know of the model and cannot read from the graphs' shapes.

    `position_grid_side` is the side of the square table of learned picture positions. In a model
    that sees no pictures `image_token_id` is None, and what belongs to pictures is 0; `experts` are
    those of a layer, 0 in a dense model.
    """

    vocab_size: int
    hidden_size: int
    image_token_id: int | None
    vision_start_token_id: int
    vision_end_token_id: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    position_grid_side: int
    layer_types: tuple[str, ...]
    num_hidden_layers: int
    experts: int = 0


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

    @property
    def weight_bytes(self) -> int:
        """About what the weights take in memory."""
        stored = sum(entry.size for name, entry in self.files.items() if name.endswith(".bin"))
        packed = self.model.experts and self.precision != "fp32"
        return int(stored * PACKED_EXPERTS) if packed else stored

    @property
    def measured(self) -> Mapping[str, OptionValue]:
        """What a calibration measured of the decoder, beside the options it was exported with."""
        return self.options.get("text", self.options.get("decode", {}))

    @property
    def kept(self) -> str:
        """What rounding left of the model, as its calibration measured; empty where none did."""
        top_1 = self.measured.get("top_1")
        try:
            return "" if top_1 is None else f"keeps {float(top_1) * 100:.0f} % of first choices"
        except ValueError:
            return ""

    def to_json(self) -> str:
        """The text of `q35chat.json`, `schema` first, files sorted by path."""
        fields = {"schema": self.schema} | asdict(self)
        fields["files"] = {name: asdict(self.files[name]) for name in sorted(self.files)}
        return json_safe(json.dumps(fields, indent=2, ensure_ascii=False)) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "q35chat.json") -> Manifest:
        """Read a manifest; `where` names the file in messages.

        Raises BundleError for text that is not JSON, another schema version, a missing field or
        one of the wrong type.
        """
        try:
            data = parse_json(text)
        except ValueError as error:
            raise _wrong(f"{where} is not valid JSON ({error})") from None
        return _manifest(Fields(data, where, _wrong))


def _manifest(fields: Fields) -> Manifest:
    schema = fields.whole("schema")
    if schema != SCHEMA:
        raise BundleError(
            f"{fields.where} has schema version {schema}, this q35chat reads version {SCHEMA}",
            Remedy.UPDATE if schema > SCHEMA else Remedy.EXPORT_AGAIN,
        )
    source, options, graphs, files = map(fields.section, ("source", "options", "graphs", "files"))
    return Manifest(
        exporter=fields.text("exporter"),
        created=fields.text("created"),
        source=Source(
            name=source.text("name"),
            revision=source.text_or_none("revision"),
            fingerprint=source.text("fingerprint"),
        ),
        target=fields.text("target"),
        precision=fields.text("precision"),
        capacity=fields.whole("capacity"),
        options={name: _options(options.section(name)) for name in options.names()},
        model=_model(fields.section("model")),
        graphs={name: graphs.text(name) for name in graphs.names()},
        files={name: _file(files.section(name)) for name in files.names()},
    )


def _options(fields: Fields) -> dict[str, OptionValue]:
    texts = {name for name in fields.names() if isinstance(fields.raw(name), str)}
    return {
        name: fields.text(name) if name in texts else fields.whole(name) for name in fields.names()
    }


def _file(fields: Fields) -> FileEntry:
    return FileEntry(size=fields.whole("size"), sha256=fields.text("sha256"))


def _model(fields: Fields) -> ModelFacts:
    sees = fields.has("image_token_id") or "image_token_id" not in fields.names()
    least = 1 if sees else 0
    return ModelFacts(
        vocab_size=fields.count("vocab_size"),
        hidden_size=fields.count("hidden_size"),
        image_token_id=fields.whole("image_token_id", most=MOST_COUNT) if sees else None,
        vision_start_token_id=fields.whole("vision_start_token_id", most=MOST_COUNT),
        vision_end_token_id=fields.whole("vision_end_token_id", most=MOST_COUNT),
        patch_size=fields.whole("patch_size", least=least, most=MOST_COUNT),
        temporal_patch_size=fields.whole("temporal_patch_size", least=least, most=MOST_COUNT),
        spatial_merge_size=fields.whole("spatial_merge_size", least=least, most=MOST_COUNT),
        position_grid_side=fields.whole("position_grid_side", least=least, most=MOST_COUNT),
        layer_types=fields.texts("layer_types"),
        num_hidden_layers=fields.count("num_hidden_layers"),
        experts=fields.whole("experts", 0, most=MOST_COUNT),
    )
