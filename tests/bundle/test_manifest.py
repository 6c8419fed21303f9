from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from q35chat.bundle.manifest import SCHEMA, Manifest
from q35chat.errors import BundleError
from tests.export.bundles import sample_manifest


def fields() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(sample_manifest().to_json())
    return data


def test_a_manifest_reads_back_as_it_was_written() -> None:
    assert Manifest.from_json(sample_manifest().to_json()) == sample_manifest()


def test_the_same_manifest_gives_the_same_text() -> None:
    again = Manifest.from_json(sample_manifest().to_json())
    assert again.to_json() == sample_manifest().to_json()


def test_a_folders_name_that_is_not_utf_8_can_be_written() -> None:
    manifest = sample_manifest()
    odd = replace(manifest, source=replace(manifest.source, name="mod\udcffell \x1b"))
    text = odd.to_json()
    assert text.encode()
    assert Manifest.from_json(text) == odd


@pytest.mark.parametrize(
    ("schema", "advice"),
    [(SCHEMA + 1, "update q35chat"), (SCHEMA - 1, "export its model .* --force")],
)
def test_another_schema_version_is_refused_with_both_numbers(schema: int, advice: str) -> None:
    with pytest.raises(BundleError, match=f"version {schema}.*version {SCHEMA}.*{advice}"):
        Manifest.from_json(json.dumps({"schema": schema}))


@pytest.mark.parametrize("name", sorted(fields()))
def test_every_field_is_required(name: str) -> None:
    data = fields()
    del data[name]
    with pytest.raises(BundleError, match=f"lacks the field '{name}'"):
        Manifest.from_json(json.dumps(data))


def test_a_bundle_from_before_there_were_experts_is_dense() -> None:
    data = fields()
    del data["model"]["experts"]
    assert Manifest.from_json(json.dumps(data)).model.experts == 0


@pytest.mark.parametrize("name", sorted(fields()["model"].keys() - {"experts"}))
def test_every_field_of_the_model_is_required(name: str) -> None:
    data = fields()
    del data["model"][name]
    with pytest.raises(BundleError, match=f"model lacks the field '{name}'"):
        Manifest.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("capacity", "2048", "a whole number"),
        ("capacity", True, "a whole number"),
        ("capacity", -1, "a whole number"),
        ("capacity", 1.5, "a whole number"),
        ("target", 7, "a text"),
        ("files", [], "an object"),
        ("graphs", {"text": 1}, "a text"),
        ("options", {"text": {"precision": None}}, "a whole number"),
        ("files", {"text/model.onnx": {"size": "1", "sha256": ""}}, "a whole number"),
        ("model", {**fields()["model"], "layer_types": "full_attention"}, "a list of texts"),
        ("model", {**fields()["model"], "layer_types": [1]}, "a list of texts"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(name: str, value: object, wanted: str) -> None:
    with pytest.raises(BundleError, match=f"{name}.*must be {wanted}"):
        Manifest.from_json(json.dumps(fields() | {name: value}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff\xfe{"])
def test_what_is_no_json_object_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(text, "out/q35chat.json")
    assert str(caught.value).startswith("out/q35chat.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    sorted(name for name, value in fields()["model"].items() if isinstance(value, int)),
)
@pytest.mark.parametrize("value", [-1, 2**31, 10**30, 10**400, float("inf")])
def test_a_number_of_the_model_that_none_has_is_named(name: str, value: object) -> None:
    data = fields()
    data["model"][name] = value
    with pytest.raises(BundleError, match=f"model: field '{name}' must be a whole number from"):
        Manifest.from_json(json.dumps(data))


@pytest.mark.parametrize("name", ["spatial_merge_size", "patch_size", "position_grid_side"])
def test_a_size_of_zero_is_refused(name: str) -> None:
    data = fields()
    data["model"][name] = 0
    with pytest.raises(BundleError, match=f"'{name}' must be a whole number from 1 to"):
        Manifest.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("top_1", "said"),
    [("0.957", "keeps 96 % of first choices"), (1, "keeps 100 % of first choices"), ("many", "")],
)
def test_a_manifest_says_in_words_what_rounding_kept(top_1: str | int, said: str) -> None:
    manifest = sample_manifest()
    assert manifest.kept == ""
    options = {"text": {**manifest.options["text"], "top_1": top_1}}
    assert replace(manifest, options=options).kept == said
