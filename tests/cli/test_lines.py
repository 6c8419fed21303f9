from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path

import pytest

from q35chat.chat.events import Event
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.lines import LineChat
from q35chat.commands.prompt_input import MAX_PROMPT_BYTES
from q35chat.errors import CapacityError, PictureError, UsageError
from q35chat.store import Store
from tests.cli.scripted import EventBackend, Recorded, Terminal, recorded, turn_events
from tests.vision.files import sample


class Refusing(EventBackend):
    """Refuses pictures and what is too long, and answers the rest."""

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        raise PictureError(f"{path} does not exist")

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        if turns[-1].text == "too long":
            raise CapacityError("prompt needs 9 slots")
        yield from super().run(turns, settings, should_stop)


def line_chat(backend: EventBackend, seen: Recorded) -> LineChat:
    settings = ChatSettings(thinking=True, max_image_tokens=256)
    workspace = Workspace(Store(), lambda: (backend, settings))
    workspace.load()
    return LineChat(workspace.new(), workspace.new, seen.console)


def talk(backend: EventBackend, lines: str | bytes, *, first: str = "", code: int = 0) -> Recorded:
    """What a script of these lines is answered; `code` is how it ends."""
    seen = recorded()
    script = BytesIO(lines if isinstance(lines, bytes) else lines.encode())
    assert line_chat(backend, seen).follow(script, first) == code
    return seen


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | BaseException) -> None:
    """Lines are typed at the prompt, or fail as given; then Ctrl+D is."""
    left = [*lines, EOFError()]

    def line(_: str) -> str:
        found = left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("builtins.input", line)


def test_every_line_is_a_question_and_the_turns_add_up() -> None:
    backend = EventBackend(turn_events("Hi"))
    assert talk(backend, "one\n\n  \ntwo").out.getvalue() == "Hi\nHi\n"
    (first, settings), (second, _) = backend.asked
    assert [(turn.role, turn.text) for turn in first] == [("user", "one")]
    assert [turn.text for turn in second] == ["one", "Hi", "two"]
    assert second[1].token_ids == (7, 8, 9, 2)
    assert (settings.thinking, settings.max_image_tokens) == (True, 256)


def test_a_picture_belongs_to_the_next_question_only(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(sample("PNG"))
    backend = EventBackend(turn_events("Hi"))
    seen = talk(backend, f"/image '{tmp_path}/a b.png'\nwhat is it?\nand now?\n")
    assert "a b.png: 64 x 64 pixels, 4 tokens" in seen.err.getvalue()
    turns = backend.asked[1][0]
    assert [len(turn.attachments) for turn in turns] == [1, 0, 0]


def test_new_starts_over() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, "one\n/new\ntwo\n")
    assert [turn.text for turn in backend.asked[1][0]] == ["two"]


def test_what_was_said_is_kept_a_conversation_each() -> None:
    talk(EventBackend(turn_events("Hi")), "one\ntwo\n/new\nthree\n/new\n")
    with Store() as store:
        assert [(kept.title, kept.turns) for kept in store.listed()] == [("three", 1), ("one", 2)]


def test_a_prompt_that_does_not_fit_is_said_and_forgotten() -> None:
    backend = EventBackend(error=CapacityError("prompt needs 9 slots"))
    seen = talk(backend, "one\ntwo\n", code=1)
    assert seen.err.getvalue().count("q35chat: prompt needs 9 slots\n") == 2
    assert [turn.text for turn in backend.asked[1][0]] == ["two"]


def test_a_script_with_a_question_that_failed_goes_on_and_ends_with_1() -> None:
    backend = Refusing(turn_events("Hi"))
    seen = talk(backend, "too long\none\n", code=1)
    assert seen.out.getvalue() == "Hi\n"
    assert seen.err.getvalue() == "q35chat: prompt needs 9 slots\n"


def test_a_script_does_not_ask_a_question_whose_picture_was_not_taken() -> None:
    backend = Refusing(turn_events("Hi"))
    seen = talk(backend, "/image no.png\nwhat is it?\nand 1 + 1?\n", code=1)
    assert [turns[-1].text for turns, _ in backend.asked] == ["and 1 + 1?"]
    assert seen.out.getvalue() == "Hi\n"
    assert seen.err.getvalue() == (
        "q35chat: no.png does not exist\n"
        "not asked, because a file for it was not taken: what is it?\n"
    )


def test_new_forgets_a_picture_that_was_not_taken() -> None:
    backend = Refusing(turn_events("Hi"))
    talk(backend, "/image no.png\n/new\none\n", code=1)
    assert [turns[-1].text for turns, _ in backend.asked] == ["one"]


def test_the_good_pictures_of_a_question_that_was_left_out_are_of_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample("PNG"))
    backend = EventBackend(turn_events("Hi"))
    talk(backend, f"/image {tmp_path}/a.png\n/image\ncompare\nand now?\n", code=1)
    ((turns, _),) = backend.asked
    assert [(turn.text, turn.attachments) for turn in turns] == [("and now?", ())]


def test_the_pictures_of_a_question_that_failed_in_a_script_are_of_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample("PNG"))
    backend = EventBackend(error=CapacityError("prompt needs 9 slots"))
    talk(backend, f"/image {tmp_path}/a.png\none\ntwo\n", code=1)
    assert [len(turns[-1].attachments) for turns, _ in backend.asked] == [1, 0]


def test_who_types_has_seen_that_a_picture_is_missing_and_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed(monkeypatch, "/image no.png", "one")
    backend = Refusing(turn_events("Hi"))
    assert line_chat(backend, recorded()).talk() == 0
    assert [turns[-1].text for turns, _ in backend.asked] == ["one"]


def test_what_fails_at_a_terminal_was_seen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "one")
    seen = recorded()
    refusing = EventBackend(error=CapacityError("prompt needs 9 slots"))
    assert line_chat(refusing, seen).talk() == 0
    assert "prompt needs 9 slots" in seen.err.getvalue()


def test_the_prompt_is_asked_before_the_lines_of_a_script() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, "two\n", first="/new is\nno command here")
    assert [turn.text for turn in backend.asked[1][0]] == ["/new is\nno command here", "Hi", "two"]


def test_the_prompt_is_shown_and_asked_before_what_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed(monkeypatch, "two")
    seen = recorded()
    backend = EventBackend(turn_events("Hi"))
    line_chat(backend, seen).talk("one \x1b")
    assert "> one ␛\n" in seen.err.getvalue()
    assert [turn.text for turn in backend.asked[1][0]] == ["one \x1b", "Hi", "two"]


def test_a_models_name_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch)
    seen = recorded()
    backend = EventBackend()
    backend.model = replace(backend.model, name="\x1b]0;hi\x07 one\ntwo")
    assert line_chat(backend, seen).talk() == 0
    assert seen.err.getvalue().startswith("␛]0;hi␇ one␊two. /help shows the commands")
    assert "\x1b" not in seen.err.getvalue()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("café".encode("latin-1"), r"line 2 on stdin is not UTF-8 \(byte 3 is 0xe9\)"),
        (b"x" * (MAX_PROMPT_BYTES + 1), r"line 2 on stdin is over the limit of 1,000,000 bytes"),
    ],
)
def test_a_line_that_is_no_prompt_ends_a_script(line: bytes, said: str) -> None:
    backend = EventBackend(turn_events("Hi"))
    with pytest.raises(UsageError, match=said):
        talk(backend, b"one\n" + line + b"\ntwo\n")
    assert len(backend.asked) == 1


def test_the_longest_line_is_asked_without_its_end() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, b"x" * MAX_PROMPT_BYTES + b"\r\ntwo")
    assert len(backend.asked[0][0][0].text) == MAX_PROMPT_BYTES
    assert backend.asked[1][0][2].text == "two"


@pytest.mark.parametrize(
    "line", ["caf\udce9", UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "invalid")]
)
def test_a_typed_line_that_is_not_utf_8_is_said_and_not_asked(
    line: str | BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, line, "two")
    seen = recorded()
    backend = EventBackend(turn_events("Hi"))
    assert line_chat(backend, seen).talk() == 0
    assert "the line is not" in seen.err.getvalue()
    assert [turns[0].text for turns, _ in backend.asked] == ["two"]


def test_a_line_that_only_looks_like_a_command_is_a_question() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, "/etc/passwd is what?\n")
    assert backend.asked[0][0][0].text == "/etc/passwd is what?"


def test_help_names_every_command() -> None:
    seen = talk(EventBackend(), "/help\n")
    assert all(name in seen.err.getvalue() for name in ("/image", "/new", "/help", "/quit"))


def test_a_picture_is_named_in_any_way_and_is_one_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "IMG 1.HEIC").write_bytes(sample("JPEG"))
    for path in (f"{tmp_path}/IMG\\ 1.HEIC", f"file://{tmp_path}/IMG%201.HEIC"):
        seen = talk(EventBackend(turn_events("Hi")), f"/image {path}\nwhat is it?\n")
        assert "IMG 1.HEIC: 64 x 64 pixels" in seen.err.getvalue()


def test_an_address_of_the_web_is_no_picture() -> None:
    seen = talk(EventBackend(), "/image https://example.org/a//b.png\nwhat is it?\n", code=1)
    assert "https://example.org/a//b.png is not fetched, nothing is" in seen.err.getvalue()


def test_image_without_a_path_asks_for_one() -> None:
    assert "which picture?" in talk(EventBackend(), "/image\n", code=1).err.getvalue()


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_ctrl_d_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed(monkeypatch, KeyboardInterrupt())
    seen = recorded()
    assert line_chat(EventBackend(), seen).talk() == 0
    assert "(Ctrl+D leaves)" in seen.err.getvalue()


def test_a_typed_word_that_is_no_command_is_said_and_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed(monkeypatch, "/bogus now", "/etc/passwd is what?")
    seen = recorded()
    backend = EventBackend(turn_events("Hi"))
    assert line_chat(backend, seen).talk() == 0
    assert "/bogus is no command" in seen.err.getvalue()
    assert [turns[0].text for turns, _ in backend.asked] == ["/etc/passwd is what?"]


def test_an_unknown_command_in_a_script_is_said_and_not_asked() -> None:
    backend = EventBackend(turn_events("Hi"))
    seen = talk(backend, "/bogus\n/usr/no/such/thing is what?\none\n", code=1)
    assert "q35chat: /bogus is no command; /help shows them" in seen.err.getvalue()
    assert "q35chat: /usr/no/such/thing is no command" in seen.err.getvalue()
    assert [turns[-1].text for turns, _ in backend.asked] == ["one"]
    with Store() as store:
        assert [kept.title for kept in store.listed()] == ["one"]


def test_a_space_before_its_slash_makes_a_line_a_question() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, " /new is what?\n")
    assert [turns[-1].text.strip() for turns, _ in backend.asked] == ["/new is what?"]


def test_commands_may_be_written_in_capitals() -> None:
    backend = EventBackend(turn_events("Hi"))
    talk(backend, "/NEW\n/Quit\nnever asked\n")
    assert backend.asked == []


@pytest.mark.parametrize(("out_is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_nothing_is_written_over_where_lines_are_read_out(
    out_is_terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    out, err = Terminal() if out_is_terminal else StringIO(), Terminal()
    seen = Recorded(Console(out, err), out, err)
    line_chat(EventBackend(turn_events("Hi")), seen).follow(BytesIO(b"hello\n"))
    assert "\r" not in err.getvalue() + out.getvalue()
    assert err.getvalue().startswith("prompt …\nlooking at pictures …\nreading the prompt …\n")
    assert "Hi" in out.getvalue()


def test_a_note_while_something_is_shown_stands_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = recorded(terminal=True)
    status = StatusLine(seen.console)
    with status.showing("loading the model"):
        status.note("this is the demo")
    shown = seen.err.getvalue().replace("\r\x1b[K", "|")
    assert shown == "|loading the model|this is the demo\n|loading the model|"


def test_the_text_of_a_file_goes_into_the_next_question(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember me", "utf-8")
    backend = EventBackend(turn_events("Hi"))
    seen = talk(backend, f"/file {path}\nWhat is it?\nAnd now?\n")
    asked = [turns[-1].text for turns, _ in backend.asked]
    assert asked == ["File `notes.txt`:\n\n```\nremember me\n```\n\nWhat is it?", "And now?"]
    assert "notes.txt: 1 line" in seen.err.getvalue()


def test_a_question_whose_file_was_not_taken_is_not_asked(tmp_path: Path) -> None:
    backend = EventBackend(turn_events("Hi"))
    seen = talk(backend, f"/file {tmp_path}\nWhat is it?\n", code=1)
    assert not backend.asked
    assert "is a folder; attach a file in it" in seen.err.getvalue()
