"""More pictures than one row has room for: none is cut off without a sign."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from q35chat.tui.widgets.chips import ROWS, Chip, Chips, fitting_chips
from q35chat.tui.widgets.containers import Flow
from tests.tui.support import Chat, picture_file

SIZES = ((120, 36), (80, 24), (60, 24), (44, 30))
NAMES = ("house.png", "holiday-at-the-sea.png", "a.png", "a-diagram-with-a-long-name.png", "e.png")


def inside(chat: Chat) -> list[Chip]:
    """The chips on screen; each lies inside the row of chips and over no other."""
    chips = [chip for chip in chat.screen.query(Chip) if chip.display]
    edge = chat.screen.query_one(Chips).content_region
    for place, chip in enumerate(chips):
        assert edge.contains_region(chip.region)
        assert not any(chip.region.overlaps(other.region) for other in chips[:place])
    return chips


async def test_chips_go_on_in_further_rows_and_then_say_how_many_more_there_are(
    chat: Chat, tmp_path: Path
) -> None:
    await chat.attach(*(picture_file(tmp_path, name) for name in NAMES))
    for size in SIZES:
        await chat.resized(*size)
        chips = inside(chat)
        left = len(NAMES) - len(chips)
        assert chips
        assert chat.screen.query_one(Chips).size.height <= ROWS
        assert (f"+{left} more" in chat.flat) is bool(left)
        assert "+0" not in chat.flat
    await chat.resized(160, 40)
    assert len(inside(chat)) == len(NAMES)


async def test_chips_that_had_no_room_come_up_as_others_go(chat: Chat, tmp_path: Path) -> None:
    await chat.attach(*(picture_file(tmp_path, name) for name in NAMES))
    await chat.resized(64, 24)
    await chat.see("+2 more")
    await chat.click(inside(chat)[0])
    await chat.see("+1 more")
    await chat.press("backspace")
    await chat.settled()
    assert "more" not in chat.flat
    assert len(inside(chat)) == 3


async def test_pictures_in_the_conversation_go_on_in_further_rows(
    chat: Chat, tmp_path: Path
) -> None:
    await chat.attach(*(picture_file(tmp_path, name) for name in NAMES))
    await chat.ask("which?")
    (row,) = chat.screen.transcript.query(Flow)
    for size in SIZES:
        await chat.resized(*size)
        cards = list(row.query(".picture-card"))
        assert len(cards) == len(NAMES)
        for place, card in enumerate(cards):
            assert row.region.contains_region(card.region)
            assert not any(card.region.overlaps(other.region) for other in cards[:place])


@given(st.lists(st.integers(8, 60), max_size=12), st.integers(20, 120), st.integers(1, 4))
def test_as_many_chips_are_shown_as_the_rows_hold(
    columns: list[int], width: int, rows: int
) -> None:
    fitting = fitting_chips(columns, width, rows, 8)
    assert 0 <= fitting <= len(columns)
    assert fitting == len(columns) or rows_of(columns[: fitting + 1], width, 8) > rows
    assert rows_of(columns[:fitting], width, 8 if fitting + 1 < len(columns) else 0) <= rows


def rows_of(columns: list[int], width: int, more: int) -> int:
    rows, used = 1, 0
    for wide in [*columns, *([more + 1] if more else [])]:
        if used and used + wide - 1 > width:
            rows, used = rows + 1, 0
        used += wide
    return rows
