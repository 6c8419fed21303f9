"""Ctrl+V takes what the clipboard of the system holds, by whichever way it can be read."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from textual import events

from q35chat.tui import clipboard_reading
from q35chat.tui.clipboard_reading import Held, TerminalAnswers, keep_picture, read
from tests.tui.on_the_way import pictures
from tests.tui.support import Chat, picture_bytes

Run = Callable[[list[str]], bytes | None]


def tools(*there: str) -> Callable[[str], str | None]:
    return lambda name: name if name in there else None


def answering(**answers: bytes) -> Run:
    """Tools that answer by the last of their arguments."""
    return lambda command: answers.get(command[-1].replace("/", "_").replace("-", "_"))


WAYLAND = {"WAYLAND_DISPLAY": "wayland-0"}


def test_text_is_read_with_the_tool_of_the_desktop() -> None:
    run = answering(_l=b"text/plain\n", _n=b"words")
    assert read(WAYLAND, run, tools("wl-paste")) == Held("words")
    assert read({"DISPLAY": ":0"}, lambda _: b"x words", tools("xclip")) == Held("x words")
    assert read({}, lambda _: b"mac words", tools("pbpaste")) == Held("mac words")


def test_a_picture_is_taken_before_the_text_beside_it() -> None:
    run = answering(_l=b"text/html\nimage/png\n", image_png=b"PNG", _n=b"its address")
    assert read(WAYLAND, run, tools("wl-paste")) == Held(picture=b"PNG")


def test_over_ssh_and_without_a_tool_nobody_can_tell() -> None:
    remote = {**WAYLAND, "SSH_TTY": "/dev/pts/0"}
    assert read(remote, lambda _: b"theirs", tools("wl-paste")) is None
    assert read(WAYLAND, lambda _: b"x", tools()) is None
    assert read(WAYLAND, lambda _: None, tools("wl-paste")) is None


def heard(*texts: str) -> tuple[str, list[str]]:
    answers, keys, found = TerminalAnswers(), "", list[str]()
    answers.asked = True
    for text in texts:
        rest, answer = answers.take(text)
        keys += rest
        found += [] if answer is None else [answer]
    return keys, found


def test_the_answer_of_a_terminal_is_taken_from_between_the_keys_however_it_is_cut() -> None:
    payload = base64.b64encode("Grüße".encode()).decode()
    for end in ("\x07", "\x1b\\"):
        whole = f"a\x1b]52;c;{payload}{end}b"
        assert heard(whole) == ("ab", ["Grüße"])
        for cut in range(1, len(whole)):
            assert heard(whole[:cut], whole[cut:]) == ("ab", ["Grüße"])


def test_keys_that_look_like_the_beginning_of_an_answer_stay_keys() -> None:
    assert heard("\x1b", "") == ("\x1b", [])
    assert heard("x\x1b", "[A", "") == ("x\x1b[A", [])
    assert heard("\x1b]52;c;%%%\x07") == ("", [""])
    assert TerminalAnswers().take("\x1b]52;c;YQ==\x07") == ("\x1b]52;c;YQ==\x07", None)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Held | None]:
    """What the clipboard holds, the last of these."""
    holds: list[Held | None] = [Held("from elsewhere")]
    monkeypatch.setattr(clipboard_reading, "read", lambda _: holds[-1])
    return holds


async def test_ctrl_v_pastes_the_clipboard_of_the_system_where_the_cursor_was(
    chat: Chat, held: list[Held | None]
) -> None:
    chat.app.copy_to_clipboard("copied here before")
    await chat.write("say  now")
    await chat.press("left", "left", "left", "left", "ctrl+v")
    await chat.until(lambda: chat.written == "say from elsewhere now")
    held.append(Held("/new"))
    await chat.press("ctrl+a", "ctrl+v")
    await chat.until(lambda: "/new" in chat.written)
    assert not chat.screen.draft.is_typed


async def test_what_is_typed_after_the_key_stays_behind_what_it_pastes(
    chat: Chat, held: list[Held | None]
) -> None:
    await chat.at_once("ctrl+v", "x", "y")
    await chat.until(lambda: chat.written == f"{held[0].text if held[0] else ''}xy")


async def test_a_picture_in_the_clipboard_becomes_an_attachment(
    chat: Chat, held: list[Held | None]
) -> None:
    held.append(Held(picture=picture_bytes()))
    await chat.press("ctrl+v")
    await chat.until(lambda: len(pictures(chat)) == 1)
    assert pictures(chat)[0].startswith("pasted-")
    assert chat.written == ""


async def test_where_the_clipboard_cannot_be_read_that_is_said(
    chat: Chat, held: list[Held | None]
) -> None:
    held.append(None)
    await chat.press("ctrl+v")
    await chat.hear("The clipboard cannot be read here")
    await chat.at_once(events.Paste("but this way"))
    assert chat.written == "but this way"


def test_of_pictures_that_were_pasted_the_newest_stay() -> None:
    paths = [keep_picture(bytes([number])) for number in range(25)]
    assert len(list(paths[0].parent.iterdir())) == 20
    assert paths[-1].read_bytes() == bytes([24])
