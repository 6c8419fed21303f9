"""What is selected with the mouse is copied as its source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Offset
from textual.selection import Selection

from q35chat.chat.values import Turn
from q35chat.tui.markdown.layout import lay_out
from q35chat.tui.markdown.segments import HARD_LIMIT
from q35chat.tui.markdown.selection import selected_source
from q35chat.tui.widgets.answer import Answer, Piece
from q35chat.tui.widgets.selecting import SelectableText, paragraph_at, word_at
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.tui.support import Chat, opened

SOURCE = """\
# A *title*

Some **bold text** and `code` with a [link](http://a.b/c) in it, long enough to wrap.

- one
  - two *items*

    ```python
    def f():

        return 1
    ```

- [x] done

> quoted
> words

| a | b |
|---|--:|
| x | 12 |
"""
WIDTH = 40


def taken(start: str, end: str) -> str:
    """The source from where one text begins to where another ends on the screen."""
    lines = [line.plain for line in lay_out(SOURCE, WIDTH)]
    first = next(n for n, line in enumerate(lines) if start in line)
    last = next(n for n, line in enumerate(lines) if end in line and n >= first)
    begin = (first, lines[first].index(start))
    stop = (last, lines[last].index(end) + len(end))
    return selected_source(SOURCE, WIDTH, begin, stop)


@pytest.mark.parametrize(
    ("start", "end", "source"),
    [
        ("A title", "A title", "# A *title*"),
        ("title", "title", "title"),
        ("bold", "bold", "bold"),
        ("Some", "wrap.", SOURCE.split("\n")[2]),
        ("text and", "code", "**text** and `code`"),
        ("Some", "bold", "Some **bold**"),
        ("Some", "co", "Some **bold text** and `co`"),
        ("text and", "lin", "**text** and `code` with a [lin](http://a.b/c)"),
        ("nk", "long", "[nk](http://a.b/c) in it, long"),
        ("two", "items", "- two *items*"),
        ("def", "return 1", "def f():\n\n    return 1"),
        ("f()", "f()", "f()"),
        ("done", "done", "- [x] done"),
        ("quoted", "words", "> quoted\n> words"),
        ("x │ 12", "x │ 12", "| x | 12 |"),
        ("items", "quoted", SOURCE[SOURCE.index("*items") : SOURCE.index("> words") - 1]),
    ],
)
def test_what_is_selected_is_its_source_without_wraps_and_padding(
    start: str, end: str, source: str
) -> None:
    assert taken(start, end) == source


@pytest.mark.parametrize(
    ("source", "end", "part"),
    [
        ("a ***bc** d* e", 3, "a ***b***"),
        ("a **b ~~cd~~ e** f", 5, "a **b ~~c~~**"),
        ("a `` b`c `` d", 4, "a `` b` ``"),
        ("a **b [c](d) e** f", 6, "a **b [c](d)**"),
        ("a \\*b *cd* e", 6, "a \\*b *c*"),
    ],
)
def test_a_selection_that_ends_inside_marks_gets_the_other_half_of_them(
    source: str, end: int, part: str
) -> None:
    assert selected_source(source, WIDTH, (0, 0), (0, end)) == part


@given(st.lists(st.sampled_from(
    ["a", "**b** ", "`c d`", "\n", "\n\n", "- ", "> ", "```\n", "    ", "[x](y) ", "\\*", "&amp;",
     "| p | q |\n|--|--|\n"]
), max_size=10), st.integers(0, 30), st.integers(0, 30))  # fmt: skip
def test_any_selection_is_a_part_of_the_source(parts: list[str], line: int, column: int) -> None:
    source = "".join(parts)
    whole = selected_source(source, 10, None, None)
    assert whole == source
    part = selected_source(source, 10, (0, 0), (line, column))
    assert all(piece.rstrip("`") in source for piece in part.split("\n"))


async def selected(chat: Chat, *selections: tuple[object, Selection]) -> str:
    chat.app.screen.selections = dict(selections)  # type: ignore[arg-type]
    text = chat.app.screen.get_selected_text()
    assert text is not None
    return text


async def test_an_answer_in_many_pieces_is_copied_as_it_was_written() -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(400))
    text = f"Before.\n\n```python\n{code}\n```\n\nAfter **all**.\n"
    assert len(text) > 2 * HARD_LIMIT
    workspace = ScriptedWorkspace()
    conversation = workspace.add("code", [Turn("user", "q"), Turn("assistant", text)])
    async with opened(workspace) as chat:
        await chat.open(conversation)
        pieces = list(chat.screen.query_one(Answer).query(Piece))
        assert len(pieces) > 2
        everything = [(piece, Selection(None, None)) for piece in pieces]
        assert await selected(chat, *everything) == text.rstrip("\n")


async def test_a_double_click_takes_a_word_and_a_triple_click_a_paragraph() -> None:
    answer = "First words of **an answer** that is long enough to be wrapped here.\n\nNext.\n"
    workspace = ScriptedWorkspace()
    conversation = workspace.add("x", [Turn("user", "my question?"), Turn("assistant", answer)])
    async with opened(workspace, size=(50, 30)) as chat:
        await chat.open(conversation)
        piece = chat.screen.query_one(Piece)
        await chat.click(piece, offset=(7, 0), times=2)
        assert chat.screen.get_selected_text() == "words"
        await chat.click(piece, offset=(7, 0), times=3)
        assert chat.screen.get_selected_text() == answer.split("\n", maxsplit=1)[0]
        await chat.click(SelectableText, offset=(4, 0), times=2)
        assert chat.screen.get_selected_text() == "question"


async def test_what_is_hidden_and_what_nobody_said_is_not_copied() -> None:
    workspace = ScriptedWorkspace()
    conversation = workspace.add("x", dialogue(1))
    async with opened(workspace) as chat:
        await chat.open(conversation)
        chat.screen._select_all_in_widget(chat.screen.transcript)
        text = chat.screen.get_selected_text() or ""
        assert "What was said before" not in text
        assert "Answer number 1." in text


def test_words_and_paragraphs_are_found_at_their_places() -> None:
    lines = ["it's a-b, c", "", "x y", "z"]
    assert word_at(lines, Offset(1, 0)) == (Offset(0, 0), Offset(4, 0))
    assert word_at(lines, Offset(8, 0)) == (Offset(8, 0), Offset(9, 0))
    assert word_at(lines, Offset(4, 0)) == (Offset(4, 0), Offset(4, 0))
    assert paragraph_at(lines, Offset(0, 3)) == (Offset(0, 2), Offset(1, 3))
