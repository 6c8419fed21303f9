from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from q35chat.tui.markdown.layout import column_widths, lay_out
from q35chat.tui.markdown.segments import HARD_LIMIT, LINE_LIMIT, SOFT_LIMIT, cut, pieces
from q35chat.tui.markdown.wrapping import breaks
from q35chat.tui.text import clean

PARTS = st.sampled_from(
    [
        "A paragraph with **bold** and `code` in it.\n\n",
        "- item one\n- item two\n",
        "1. first\n",
        "```python\nx = 1\n\ny = 2\n```\n",
        "```\nnever closed\n",
        "~~~~\n```\n~~~~\n\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "# Heading\n\n",
        "> quoted\n\n",
        "中文段落，没有空格。",
        "word " * 50,
        "x" * 300,
        "\n",
        "    indented\n",
    ]
)
TEXTS = st.lists(PARTS, max_size=120).map("".join)


def plain(source: str, width: int = 60) -> str:
    return "\n".join(line.plain.rstrip() for line in lay_out(source, width))


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_pieces_hold_the_whole_text_and_stay_bounded(text: str) -> None:
    found = pieces(text)
    joined = ""
    reopened = ""
    for source, goes_on in found:
        body = source.removeprefix(reopened) if reopened else source
        reopened = ""
        rest = text[len(joined) :]
        if goes_on and not rest.startswith(body):
            body = body[: body.rstrip("\n").rfind("\n") + 1]
            follower = found[[piece for piece, _ in found].index(source) + 1][0]
            reopened = follower[: follower.index("\n") + 1]
        assert rest.startswith(body)
        joined += body
    assert joined == text
    assert all(len(source) <= LINE_LIMIT + 2 * HARD_LIMIT for source, _ in found)


@given(TEXTS, st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_streaming_in_fragments_never_grows_a_piece_beyond_its_bound(text: str, step: int) -> None:
    open_source = ""
    for start in range(0, len(text), step):
        open_source = pieces(open_source + text[start : start + step])[-1][0]
        assert len(open_source) <= LINE_LIMIT + 2 * HARD_LIMIT


def test_short_texts_are_not_cut() -> None:
    assert cut("para\n\n" * (SOFT_LIMIT // 6 - 1)) is None
    assert pieces("") == [("", False)]


def test_a_long_code_block_is_cut_with_its_fence_closed_and_opened_again() -> None:
    source = "```python\n" + "x = 1\n" * 600
    found = cut(source)
    assert found is not None
    assert found.goes_on
    assert found.done.endswith("x = 1\n```\n")
    assert found.rest.startswith("```python\nx = 1\n")


def test_a_long_list_is_cut_between_items() -> None:
    found = cut("- an item of the list\n" * 200)
    assert found is not None
    assert found.goes_on
    assert found.rest.startswith("- an item")


@given(TEXTS, st.integers(20, 120))
@settings(max_examples=60, deadline=None)
def test_no_line_is_wider_than_there_is_room(text: str, width: int) -> None:
    assert all(cell_len(line.plain) <= width for line in lay_out(text[:4_000], width))


@given(st.text(max_size=300), st.integers(20, 80))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_laid_out(text: str, width: int) -> None:
    assert all("\n" not in line.plain for line in lay_out(clean(text), width))


def test_paragraphs_keep_their_line_ends_and_wrap_at_words() -> None:
    assert plain("one two three\nfour", 9) == "one two\nthree\nfour"


def test_lists_hang_and_nest() -> None:
    shown = plain("- one two three four\n  - nested\n- next\n\n9. nine\n10. ten\n", 14)
    assert shown == "• one two\n  three four\n  ◦ nested\n• next\n\n 9. nine\n10. ten"


def test_code_keeps_every_character_and_folds_long_lines() -> None:
    shown = plain("```\n  a  b\n" + "y" * 30 + "\n```", 24)
    assert shown == " " * 18 + "copy\n    a  b\n  " + "y" * 20 + "\n  " + "y" * 10


def test_a_code_block_is_headed_by_its_language_and_what_copies_it() -> None:
    assert plain("```python title\nx\n```", 30) == f"  python{' ' * 16}copy\n  x"
    assert plain("```verylonglanguage\nx\n```", 20) == "  verylonglan copy\n  x"
    assert plain("```mermaid\ngraph TD; A-->B\n```", 30).endswith("\n  graph TD; A-->B")


def test_a_code_block_without_a_line_has_no_head() -> None:
    assert "copy" not in plain("```python\n```")


def test_tasks_have_a_box_in_place_of_their_mark() -> None:
    shown = plain("- [ ] open\n- [x] *done*\n  - [X] nested\n- [y] none\n\n1. [ ] first\n")
    assert shown == "☐ open\n☑ done\n  ☑ nested\n• [y] none\n\n ☐ first"


def test_html_and_console_markup_are_text() -> None:
    assert plain("<b>x</b> [red]y[/red]\n\n<div>\nz\n</div>") == (
        "<b>x</b> [red]y[/red]\n\n<div>\nz\n</div>"
    )


def test_a_link_shows_where_it_leads() -> None:
    assert plain("[here](https://a.example/x) https://b.example") == (
        "here (https://a.example/x) https://b.example"
    )


def test_a_table_wraps_its_cells() -> None:
    shown = plain("| name | what |\n|---|---|\n| a | one two three four |\n", 20)
    assert shown == "name │ what\n─────┼──────────────\na    │ one two three\n     │ four"


@given(st.lists(st.integers(0, 80), min_size=1, max_size=8), st.integers(30, 120))
def test_columns_fit_where_they_can(natural: list[int], width: int) -> None:
    widths = column_widths(natural, width)
    room = width - 3 * (len(natural) - 1)
    assert sum(widths) <= max(room, sum(min(max(1, size), 3) for size in natural))
    assert all(given_ <= max(1, size) for given_, size in zip(widths, natural, strict=True))


def test_chinese_breaks_between_characters_but_not_before_a_full_stop() -> None:
    text = "二分查找很快。每一步"
    cuts = breaks(text, 13)
    assert [text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)] == [
        "二分查找很", "快。每一步",
    ]  # fmt: skip


def test_a_word_longer_than_the_line_is_cut() -> None:
    assert breaks("ab " + "x" * 25, 10) == [3, 13, 23]


def test_the_cells_of_a_table_stand_where_its_second_line_says() -> None:
    source = "| name | n | of |\n|:--|--:|:-:|\n| one | 7 | a |\n| three | 1,000 | bcd |\n"
    assert [line.plain for line in lay_out(source, 60)] == [
        "name  │     n │ of",
        "──────┼───────┼────",
        "one   │     7 │  a",
        "three │ 1,000 │ bcd",
    ]


def test_prose_is_no_wider_than_is_read_with_ease_and_code_and_tables_may_be() -> None:
    words, code = "word " * 100, "x" * 150
    lines = lay_out(f"{words}\n\n- {words}\n\n```\n{code}\n```\n", 200)
    prose = [line for line in lines if "word" in line.plain]
    assert max(line.cell_length for line in prose) <= 100
    assert any(code in line.plain for line in lines)
