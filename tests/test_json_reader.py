from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from q35chat.errors import BundleError
from q35chat.json_reader import MOST_BYTES, Fields, parse_json, read_bytes, read_json

INFINITE = float("inf")
VALUES: list[object] = [
    *(None, -1, 0, 1, 7, 10**12, 10**30, 10**400, -(10**400), 1.5, 1e308, float("nan"), INFINITE),
    *("x", "", "\x1b[31m\n", [], {}, True, ["a"], [1, 2, 3], [10**400] * 3, {"a": 1}),
]


def fields(value: object) -> Fields:
    return Fields({"field": value}, "file.json", BundleError)


READERS: list[Callable[[Fields], Any]] = [
    lambda found: found.text("field"),
    lambda found: found.texts("field"),
    lambda found: found.flag("field", default=True),
    lambda found: found.whole("field", least=1, most=9),
    lambda found: found.wholes("field", (1, 2, 3), most=9),
    lambda found: found.real("field"),
    lambda found: found.reals("field", 3, least=0, most=9),
    lambda found: found.section("field"),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_any_value_is_read_or_refused_on_one_short_line(
    read: Callable[[Fields], Any], value: object
) -> None:
    try:
        read(fields(value))
    except BundleError as error:
        line = str(error)
        assert line.startswith("file.json: field 'field' must be ")
        assert len(line) < 200
        assert line.isprintable()


@pytest.mark.parametrize(
    "value", [-1, 0, 10, 10**30, 10**400, 1.5, 2.0, float("nan"), INFINITE, True, "1", None, []]
)
def test_a_whole_number_is_one_and_in_its_range(value: object) -> None:
    with pytest.raises(BundleError, match="must be a whole number from 1 to 9, found"):
        fields(value).whole("field", least=1, most=9)


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, float("nan"), INFINITE, -INFINITE])
def test_a_number_is_finite(value: float) -> None:
    with pytest.raises(BundleError, match="must be a number from"):
        fields(value).real("field")


def test_an_item_of_a_list_is_named_by_its_field() -> None:
    with pytest.raises(BundleError, match=r"'field' must be a number from 0 to 9, found 10{50}"):
        fields([1, 10**400, 2]).reals("field", 3, least=0, most=9)


def test_a_default_stands_for_a_field_that_is_not_there() -> None:
    empty = Fields({}, "file.json", BundleError)
    assert empty.whole("a", 5) == 5
    assert empty.real("a", 0.5) == 0.5
    assert empty.wholes("a", (1, 2)) == (1, 2)
    assert empty.flag("a", default=True)
    assert empty.section_or_empty("a").names() == []
    with pytest.raises(BundleError, match=r"file\.json lacks the field 'a'$"):
        empty.whole("a")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": [1, "\xc3\xa4"]}')
    assert read_json(tmp_path / "a.json") == {"a": [1, "ä"]}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="a pipe or a device"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("path", ["/dev/zero", "/tmp"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a file"):
        read_json(Path(path))


def test_a_file_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, why in {
        "absent": "No such file",
        "loop": "symbolic links",
        "n" * 999: "too long",
    }.items():
        with pytest.raises(ValueError, match=why):
            read_json(tmp_path / name)


def test_a_large_file_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[  ]")
    assert read_bytes(tmp_path / "a.json", most=4) == b"[  ]"
    with (tmp_path / "a.json").open("ab") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_bytes(tmp_path / "a.json", most=4)
    with pytest.raises(ValueError, match=f"more than {MOST_BYTES:,} bytes"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["[" * 20_000, "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65])
def test_what_is_nested_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        parse_json(text)


def test_what_is_nested_a_little_is_read() -> None:
    value = parse_json("[" * 64 + "]" * 64)
    for _ in range(63):
        (value,) = value
    assert value == []
