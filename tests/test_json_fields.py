from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from q35chat.errors import BundleError
from q35chat.json_reader import Fields

INFINITE = float("inf")
VALUES: list[object] = [
    *(None, -1, 0, 1, 7, 10**12, 10**30, 10**400, -(10**400), 1.5, 1e308, float("nan"), INFINITE),
    *("x", "", "\x1b[31m\n", [], {}, True, ["a"], [1, 2, 3], [10**400] * 3, {"a": 1}),
]


def fields(value: object) -> Fields:
    return Fields({"field": value}, "file.json", BundleError, "do this")


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
        assert line.endswith("; do this")
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
    empty = Fields({}, "file.json", BundleError, "do this")
    assert empty.whole("a", 5) == 5
    assert empty.real("a", 0.5) == 0.5
    assert empty.wholes("a", (1, 2)) == (1, 2)
    assert empty.flag("a", default=True)
    assert empty.section_or_empty("a").names() == []
    with pytest.raises(BundleError, match=r"file\.json lacks the field 'a'; do this"):
        empty.whole("a")
