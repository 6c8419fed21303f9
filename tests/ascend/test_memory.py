from __future__ import annotations

import pytest

from q35chat.ascend import diagnosis
from q35chat.ascend.memory import GraphSize, estimate, largest_needed, needed
from q35chat.ascend.npu_smi import Npu

GIB = 1 << 30
WEIGHTS = (GraphSize("prefill", 8 * GIB, False), GraphSize("decode", 8 * GIB, False))
FILES = tuple(GraphSize(name, size * GIB, True) for name, size in (("prefill", 16), ("decode", 9)))


def test_an_estimate_gives_the_weights_and_what_has_been_published() -> None:
    prefill, decode, both = estimate(WEIGHTS)

    assert prefill.startswith("prefill 8.0 GiB of weights, 17.4 GiB if it grows as those published")
    assert "9.1 GiB" in decode
    assert both == "all at once take 29.1 GiB of a chip with their states, one at a time 19.1 GiB"


def test_a_decode_in_gears_is_taken_to_grow_as_the_prefill() -> None:
    (line, _) = estimate([GraphSize("decode", 8 * GIB, False, in_gears=True)])

    assert "17.4 GiB" in line


def test_of_weights_in_int8_it_is_said_that_nobody_knows_how_they_grow() -> None:
    (line, _) = estimate([GraphSize("decode", 4 * GIB, converted=False, in_int8=True)])
    assert "which are FP16; nobody has published how weights in int8 grow" in line
    assert "nobody" not in next(iter(estimate(WEIGHTS)))


def test_files_that_are_there_count_as_they_are() -> None:
    assert list(estimate(FILES)) == []
    assert (needed(FILES), largest_needed(FILES)) == (int(27.5 * GIB), int(17.6 * GIB))


@pytest.mark.parametrize(
    ("sizes", "chip", "status", "found"),
    [
        (FILES, 40, "ok", "prefill 16.0 GiB; decode 9.0 GiB; a chip has 40.0 GiB: all fit at once"),
        (FILES, 21, "info", "one graph at a time fits"),
        (FILES, 17, "warning", "too little for one of them"),
        (WEIGHTS, 17, "info", "may be too little"),
    ],
)
def test_a_chip_is_compared_with_the_files(
    sizes: tuple[GraphSize, ...],
    chip: int,
    status: str,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chips = [Npu(at, "310P3", "OK", 0, chip * GIB) for at in range(2)]
    monkeypatch.setattr(diagnosis, "npus", lambda: chips)
    (check,) = diagnosis.fit(sizes)

    assert check.status == status
    assert found in check.found
    assert bool(check.advice) == (status == "warning")
