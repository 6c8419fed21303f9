"""What is pasted or typed is sent and kept as it is, where that harms nobody."""

from __future__ import annotations

import pytest
from textual import events

from q35chat.tui.chat.paste import plain_text
from q35chat.tui.markdown.graphemes import clusters
from tests.tui.support import Chat

MARKS = "\u200e\u200f\u061c\u200c\u200d\ufe0e\ufe0f\u2060"
HARMLESS = "שלום\u200f (a\u200eb) نمی\u200cخواهم 👩\u200d🚀 ❤\ufe0f a\ufeffb \u061cج \u2060."
BOM_AND_LINES = "\ufeffone\u2028two\u2029three\r\nfour\rfive"


@pytest.mark.parametrize(
    ("pasted", "text"),
    [
        (HARMLESS, HARMLESS),
        (BOM_AND_LINES, "one\ntwo\nthree\nfour\nfive"),
        ("a\x1b[31m\u202eb\U0010eeee", "a␛[31m<202E>b<10EEEE>"),
    ],
)
def test_only_what_steers_a_terminal_is_changed_in_a_paste(pasted: str, text: str) -> None:
    assert plain_text(pasted) == text


@pytest.mark.parametrize("bracketed", [True, False])
async def test_marks_of_a_script_are_sent_as_they_were_pasted(chat: Chat, bracketed: bool) -> None:
    editor = chat.screen.composer.editor
    text = f"{HARMLESS}\u2028next"
    if bracketed:
        editor.post_message(events.Paste(text))
    else:
        for character in text.replace("\ufeff", ""):
            editor.post_message(events.Key("some_key", character))
    await chat.until(lambda: editor.text.endswith("next"))
    await chat.press("enter")
    await chat.until(lambda: len(chat.conversation.steps) > 1)
    sent = chat.conversation.steps[0].turn.text
    assert sent == plain_text(text if bracketed else text.replace("\ufeff", ""))
    assert "<" not in sent
    assert "<20" not in await chat.settled()


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_no_step_of_the_cursor(mark: str) -> None:
    assert clusters(f"a{mark}b") == ([f"a{mark}b"] if mark == "\u200d" else [f"a{mark}", "b"])
