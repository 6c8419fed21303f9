from __future__ import annotations

from typing import Any

import pytest

from q35chat.errors import Option, UsageError
from q35export.ascend.graphs import AscendOptions
from q35export.request import parse_gears


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "--max-seq-len must be at least 1, found 0"),
        ({"capacity": -5}, "--max-seq-len must be at least 1, found -5"),
        ({"capacity": 17, "gears": (32,)}, r"--gears must be in 1 to 17 .*found 32"),
        ({"gears": (0, 32)}, "--gears must be positive lengths, found 0"),
        ({"gears": (32, 32)}, "name no length twice, found 32,32"),
        ({"gears": (512, 32)}, "--gears must ascend"),
        ({"image_gears": ()}, "--image-gears names no length"),
        ({"image_gears": (-16,)}, "--image-gears must be positive lengths, found -16"),
        ({"dtype": "bf16"}, "--dtype must be fp16 or fp32, found 'bf16'"),
        ({"step_tokens": 0}, "--step-tokens must be 1 to 8, found 0"),
        ({"step_tokens": 9}, "--step-tokens must be 1 to 8, found 9"),
        ({"step_tokens": 2, "fused_decode": False}, "leave out --no-fused-decode"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AscendOptions(**options)


@pytest.mark.parametrize(
    ("capacity", "gears"),
    [(17, (17,)), (32, (32,)), (600, (32, 512)), (4096, (32, 512, 1024, 2048))],
)
def test_gears_not_given_are_the_usual_ones_that_fit(capacity: int, gears: tuple[int, ...]) -> None:
    assert AscendOptions(capacity=capacity).gears == gears


def test_a_growing_cache_means_a_prefill_without_states() -> None:
    options = AscendOptions(fused_decode=False)
    assert not options.fixed_cache
    assert not options.stateful_prefill


@pytest.mark.parametrize(
    ("options", "gears", "rows"),
    [
        ({"gears": (1, 32), "step_tokens": 3}, (1, 2, 3, 32), 3),
        ({"gears": (1, 32)}, (1, 32), 1),
        ({"gears": (32,), "step_tokens": 3}, (32,), 1),
        ({"gears": (1, 32), "step_tokens": 3, "stateless_prefill": True}, (1, 32), 1),
    ],
)
def test_a_prefill_that_decodes_takes_as_many_tokens_as_a_step(
    options: dict[str, Any], gears: tuple[int, ...], rows: int
) -> None:
    found = AscendOptions(**options)
    assert (found.gears, found.prefill_rows) == (gears, rows)


def test_a_list_of_gears_is_read() -> None:
    assert parse_gears(Option.GEARS, "32,512") == (32, 512)


@pytest.mark.parametrize("text", ["", "32,", "a", "32;64", "1.5"])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--gears must be lengths separated by commas"):
        parse_gears(Option.GEARS, text)
