"""A line that nobody would type by hand: what is done for each key stays small."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.document._document import Document
from textual.geometry import Offset

from q35chat.tui.markdown import graphemes, wrapping
from q35chat.tui.markdown.graphemes import after, before, ends
from q35chat.tui.markdown.wrapping import breaks, breaks_after_edit
from q35chat.tui.widgets.line_editing import WrappedScript
from tests.tui.support import Chat

SIGNS = "ab  c漢字（。，.,)الع\u0301\u200d\u200c\ufe0f🇩🇪👩🏽\u1112\u1161नम\u094d"
any_text = st.text(st.sampled_from(SIGNS), max_size=80)
LONG = {"letters": "a" * 20_000, "words": "word and " * 2_000, "chinese": "请用中文，" * 4_000}
every_long_line = pytest.mark.parametrize("line", LONG.values(), ids=LONG)


@given(
    any_text,
    st.integers(2, 12),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), any_text), max_size=4),
    st.sampled_from([5, 30, 2_000]),
)
def test_an_edit_wraps_as_the_whole_line_would(
    text: str, width: int, edits: list[tuple[int, int, str]], piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapping, "_PIECE", piece)
        known = breaks(text, width, hanging=False)
        for place, length, added in edits:
            start, end = min(place, len(text)), min(place + length, len(text))
            text = text[:start] + added + text[end:]
            known = breaks_after_edit(text, width, known, start, end, start + len(added))
            assert known == breaks(text, width, hanging=False)


@given(any_text, st.integers(-1, 90))
def test_the_boundary_beside_a_place_is_found_without_the_whole_line(text: str, index: int) -> None:
    marks = ends(text)
    left, right = bisect_left(marks, index), bisect_right(marks, index)
    assert before(text, index) == (marks[left - 1] if left else 0)
    assert after(text, index) == (marks[right] if right < len(marks) else len(text))


class Counted:
    """How many characters were looked at to find lines."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.characters = 0
        patch.setattr(wrapping, "breaks", self._breaks)
        patch.setattr("q35chat.tui.widgets.line_editing.breaks", self._breaks)

    def _breaks(self, text: str, width: int, *, hanging: bool = True) -> list[int]:
        self.characters += len(text)
        return breaks(text, width, hanging=hanging)


@every_long_line
@pytest.mark.parametrize("place", ["end", "middle"])
def test_a_key_on_a_long_line_looks_at_a_small_part_of_it(
    line: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(line)
    wrapped = WrappedScript(document, 60)
    counted = Counted(monkeypatch)
    column = len(line) if place == "end" else len(line) // 2
    for _ in range(10):
        document.replace_range((0, column), (0, column), "  ")
        wrapped.wrap_range((0, column), (0, column), (0, column + 2))
        column += 2
    behind = 0 if place == "end" else len(line) // 2
    assert counted.characters < 10 * (behind + 4_000)
    whole = WrappedScript(Document(document.text), 60)
    assert wrapped.get_offsets(0) == whole.get_offsets(0)
    assert wrapped.height == whole.height
    for at in (0, 61, column, column + 1, len(line)):
        assert wrapped.location_to_offset((0, at)) == whole.location_to_offset((0, at))
        offset = wrapped.location_to_offset((0, at))
        assert wrapped.offset_to_location(offset) == whole.offset_to_location(offset)


def test_long_lines_are_not_kept() -> None:
    graphemes._kept_ends.cache_clear()
    tracemalloc.start()
    try:
        for length in range(20_000, 20_020):
            ends("a" * length)
            ends("漢" * length)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000


def test_edits_that_make_and_take_lines_and_tabs_wrap_as_the_whole_would() -> None:
    document = Document("one two three\nfour\n\tfive six")
    wrapped = WrappedScript(document, 6)
    for added, start, end in (
        ("x\ny", (0, 3), (0, 4)),
        ("", (1, 0), (2, 2)),
        ("\t", (0, 1), (0, 1)),
        ("long word", (0, 2), (0, 2)),
        ("", (0, 1), (0, 2)),
        ("six", (1, 0), (1, 0)),
        (" and more words", (1, 3), (1, 3)),
        ("", (1, 2), (1, 12)),
    ):
        result = document.replace_range(start, end, added)
        wrapped.wrap_range(start, end, result.end_location)
        whole = WrappedScript(Document(document.text), 6)
        assert wrapped._wrap_offsets == whole._wrap_offsets
        assert wrapped._offset_to_line_info == whole._offset_to_line_info
        assert wrapped._line_index_to_offsets == whole._line_index_to_offsets
        rows = range(document.line_count)
        assert [*map(wrapped.get_tab_widths, rows)] == [*map(whole.get_tab_widths, rows)]
    assert wrapped.location_to_offset((0, 0)) == Offset(0, 0)


async def test_keys_that_come_together_are_told_of_together(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    editor, drafting = chat.screen.composer.editor, chat.screen.draft
    monkeypatch.setattr(drafting, "changed", lambda: told.append(editor.text))
    for _ in range(300):
        editor.post_message(events.Key("a", "a"))
    await chat.until(lambda: told[-1:] == ["a" * 300])
    assert len(told) < 30


def test_undoing_many_keys_at_once_wraps_as_the_whole_would() -> None:
    document = Document("typed " + "some words and " * 20)
    wrapped = WrappedScript(document, 12)
    document.replace_range((0, 0), (0, 6), "")
    wrapped.wrap_range((0, 0), (0, 6), (0, 5))  # as the editor tells of a batch: its furthest ends
    whole = WrappedScript(Document(document.text), 12)
    assert wrapped.get_offsets(0) == whole.get_offsets(0)
