"""Text of all scripts: nothing lost or doubled, no character torn, every width as drawn."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.geometry import Offset

from q35chat.tui.markdown.graphemes import after, before, clusters, ends, forward
from q35chat.tui.markdown.layout import lay_out
from q35chat.tui.markdown.segments import pieces
from q35chat.tui.markdown.wrapping import breaks, fitting, folds, padded
from q35chat.tui.text import one_line
from q35chat.tui.widgets.editor import Editor
from q35chat.tui.widgets.line_editing import word_left, word_right
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import NARROW, WIDE, Chat, opened

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
TEXTS = {
    "arabic": "مَرْحَبًا بِالْعَالَمِ، كَيْفَ حَالُكَ الْيَوْمَ؟",
    "hebrew": "שָׁלוֹם עוֹלָם, מַה שְּׁלוֹמְךָ הַיּוֹם?",
    "hindi": "नमस्ते दुनिया, क्षत्रिय किताब पढ़ता है।",
    "thai": "สวัสดีครับยินดีที่ได้รู้จักคุณน้ำ",
    "marks": "Ze\u0301bra\u0302 n\u0303o\u0308 Z\u0337\u0322\u031ba\u0336l\u0353\u033dg\u0336o",
    "emoji": f"a {FAMILY} b 👩🏽\u200d🚀👍🏽 🇩🇪🇫🇷🇯🇵 1\ufe0f\u20e3 ❤\ufe0f",
    "korean": "안녕하세요 세계 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "chinese": "请用中文解释二分查找，并给出例子。𠮷野家か\u3099",
    "mixed": "The word سَلَام means שָׁלוֹם, 和平 or शांति ☮\ufe0f.",
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
any_text = st.text(
    st.sampled_from([*"".join(TEXTS.values()), *"ab \u200d\u200c\ufe0f\u0301\u1160🇩"]), max_size=60
)


def bare(text: str) -> str:
    """The text without spaces and without what the layout draws around it."""
    return re.sub(r"[\s│─┼▌•]", "", text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("abc", ["a", "b", "c"]),
        ("", []),
        ("e\u0301x", ["e\u0301", "x"]),
        (f"a{FAMILY}b", ["a", FAMILY, "b"]),
        ("👍🏽👍", ["👍🏽", "👍"]),
        ("🇩🇪🇫🇷🇯", ["🇩🇪", "🇫🇷", "🇯"]),
        ("1\ufe0f\u20e3❤\ufe0f", ["1\ufe0f\u20e3", "❤\ufe0f"]),
        ("🏴\U000e0067\U000e0062\U000e007f!", ["🏴\U000e0067\U000e0062\U000e007f", "!"]),
        ("\u1112\u1161\u11ab한글", ["\u1112\u1161\u11ab", "한", "글"]),
        ("किम्", ["कि", "म्"]),
        ("น้ำใจ", ["น้ำ", "ใ", "จ"]),
        ("בְּ א", ["בְּ", " ", "א"]),
        ("\u0301a\t\u0301", ["\u0301", "a", "\t", "\u0301"]),
    ],
)
def test_characters_are_those_that_people_see(text: str, parts: list[str]) -> None:
    assert clusters(text) == parts


@given(any_text)
def test_characters_cover_the_text_and_its_cells(text: str) -> None:
    assert "".join(clusters(text)) == text
    assert sum(map(cell_len, clusters(text))) == cell_len(text)
    for index in range(len(text) + 1):
        assert before(text, index) <= index <= forward(text, index)
        assert after(text, index) in ends(text) or not text


@given(any_text, st.integers(2, 30))
def test_lines_break_between_characters_and_fit(text: str, width: int) -> None:
    for cut in (breaks(text, width), breaks(text, width, hanging=False), folds(text, width)):
        assert cut == sorted(set(cut))
        assert set(cut) <= set(ends(text)[:-1])
        bounds = [0, *cut, len(text)]
        lines = [text[start:end] for start, end in pairwise(bounds)]
        for line in map(str.rstrip, lines):
            assert cell_len(line) <= width or len(clusters(line)) == 1
    assert cell_len(fitting(text, width)) <= width
    assert text.startswith(fitting(text, width))
    assert cell_len(one_line(text, width)) <= width


@every_text
@pytest.mark.parametrize("width", [10, 13, 40])
@pytest.mark.parametrize(
    "form", ["{}", "- {}\n- x", "> {}", "# {}", "```\n{}\n```", "| a |\n|---|\n| {} |", "**{}**"]
)
def test_no_layout_loses_a_character(text: str, width: int, form: str) -> None:
    lines = [line.plain for line in lay_out(form.format(text), width)]
    assert bare(text) in bare("".join(lines))
    assert max(map(cell_len, lines)) <= width


@every_text
def test_a_long_text_is_never_cut_inside_a_character(text: str) -> None:
    long = text * 120
    assert "".join(source for source, _ in pieces(long)) == long
    offset = 0
    for source, _ in pieces(long)[:-1]:
        offset += len(source)
        assert offset in ends(long)


def test_names_line_up_whatever_they_are_written_in() -> None:
    assert {cell_len(padded(text, 70)) for text in TEXTS.values()} == {70}


@pytest.mark.parametrize(
    ("line", "column", "left", "right"),
    [
        ("one two", 7, 4, 7),
        ("one two", 0, 0, 3),
        ("e\u0301te\u0301 n\u0303o", 8, 6, 9),
        ("שָׁלוֹם עוֹלָם", 0, 0, 7),
        ("नमस्ते दुनिया", 13, 7, 13),
        (f"hi {FAMILY}!", 10, 3, 11),
        ("a..b", 3, 1, 4),
    ],
)
def test_words_keep_their_marks(line: str, column: int, left: int, right: int) -> None:
    assert (word_left(line, column), word_right(line, column)) == (left, right)


async def editing(chat: Chat, text: str) -> Editor:
    await chat.write(text)
    return chat.screen.composer.editor


async def test_the_cursor_moves_and_deletes_whole_characters(chat: Chat) -> None:
    editor = chat.screen.composer.editor
    for text in TEXTS.values():
        editor.put(text)
        parts = clusters(text)
        for index in range(len(parts), 0, -1):
            assert editor.cursor_location == (0, len("".join(parts[:index])))
            editor.action_cursor_left()
        for index in range(len(parts)):
            assert editor.cursor_location == (0, len("".join(parts[:index])))
            editor.action_cursor_right()
        while parts:
            assert editor.text == "".join(parts)
            editor.action_delete_left()
            parts.pop()
        assert editor.text == ""


async def test_delete_takes_the_whole_character_or_word_after_the_cursor(chat: Chat) -> None:
    editor = chat.screen.composer.editor
    editor.put(f"{FAMILY}e\u0301te\u0301 שָׁלוֹם!")
    editor.move_cursor((0, 0))
    editor.action_delete_right()
    assert editor.text == "e\u0301te\u0301 שָׁלוֹם!"
    editor.action_delete_word_right()
    editor.action_delete_word_right()
    assert editor.text == "!"


async def test_text_is_shown_sent_and_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = ScriptedWorkspace([Reply(text) for text in TEXTS.values()])
    async with opened(workspace, size=NARROW) as chat:
        copied: list[str] = []
        monkeypatch.setattr(chat.app, "copy", lambda answer, _: copied.append(answer))
        for text in TEXTS.values():
            await chat.new()
            long = f"{text} {text} {text}"
            await chat.write(long)
            assert bare(long) in bare(_rows(chat.screen.composer.editor))
            await chat.press("enter")
            await chat.until(lambda: len(chat.conversation.steps) > 1)
            await chat.idle()
            assert chat.conversation.steps[0].turn.text == long
            shown = bare(await chat.settled())
            assert bare(long) in shown
            assert shown.count(bare(text)) >= 4
            assert {cell_len(line) for line in chat.text.split("\n")} == {NARROW[0]}
            await chat.screen.run_command("copy_answer")
        assert copied == [*TEXTS.values()]


async def test_typing_one_key_at_a_time_keeps_the_order(chat: Chat) -> None:
    editor = chat.screen.composer.editor
    for text in TEXTS.values():
        editor.put("👧")
        editor.move_cursor((0, 0))
        for character in text:
            editor.insert(character)
        assert editor.text == text + "👧"
        editor.action_cursor_left()
        assert editor.cursor_location[1] in (0, *ends(editor.text))


async def test_keys_that_python_does_not_call_printable_are_text(chat: Chat) -> None:
    text = f"نمی\u200cخواهم\u3000{FAMILY}\xa0\U0001fae8"
    editor = chat.screen.composer.editor
    for character in (*text, "\U0010eeee", "\x85"):
        editor.post_message(events.Key("some_key", character))
    await chat.pilot.pause()
    assert editor.text == text
    await chat.press("backspace", "backspace", "backspace")
    assert editor.text == "نمی\u200cخواهم\u3000"


async def test_a_click_finds_the_character_that_is_drawn_there() -> None:
    async with opened(size=WIDE) as chat:
        editor = chat.screen.composer.editor
        for text in TEXTS.values():
            editor.put(text)
            x = 0
            for start, end in pairwise((0, *ends(text))):
                for _ in range(cell_len(text[start:end])):
                    assert editor.wrapped_document.offset_to_location(Offset(x, 0)) == (0, start)
                    x += 1


async def test_up_and_down_never_land_inside_a_character() -> None:
    async with opened(size=NARROW) as chat:
        editor = chat.screen.composer.editor
        up, down = editor.action_cursor_up, editor.action_cursor_down
        home, end = editor.action_cursor_line_start, editor.action_cursor_line_end
        for text in TEXTS.values():
            editor.put(f"{text}\nabc abc abc abc abc\n{text * 4}")
            for move in (up, up, up, down, down, down, home, end, up, end, down, end):
                move()
                row, column = editor.cursor_location
                assert column in (0, *ends(editor.document.get_line(row)))


async def test_home_and_end_stay_on_the_wrapped_line() -> None:
    async with opened(size=NARROW) as chat:
        editor = await editing(chat, f"{FAMILY} " * 60)
        editor.move_cursor((0, 0))
        editor.action_cursor_line_end()
        x, y = editor.wrapped_document.location_to_offset(editor.cursor_location)
        assert y == 0
        assert x > 40


async def test_the_cursor_covers_a_whole_character(chat: Chat) -> None:
    editor = await editing(chat, f"a{FAMILY}b")
    editor.action_cursor_left()
    editor.action_cursor_left()
    texts = [segment.text for segment in editor.render_line(0)]
    assert FAMILY in texts


async def test_wide_tabs_and_long_spaces_do_not_disturb_the_cursor() -> None:
    async with opened(size=NARROW) as chat:
        editor = await editing(chat, "中\t文" + " " * 120 + "x")
        width = editor.content_size.width
        for _ in range(30):
            offset = editor.wrapped_document.location_to_offset(editor.cursor_location)
            assert offset.x < width
            editor.action_cursor_left()


def _rows(editor: Editor) -> str:
    return "".join(editor.render_line(y).text for y in range(editor.wrapped_document.height))
