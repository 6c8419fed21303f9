"""Bytes on the command line that are not UTF-8: one line and exit code 2, and nothing happens."""

from __future__ import annotations

import pytest

from q35chat.cli import run
from q35chat.store import Store
from tests.cli.scripted import recorded
from tests.store.builders import conversation

BAD = "a\udcff"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ask", "--system", BAD, "Hello"), "--system is not UTF-8 (byte 1 is 0xff)"),
        (("ask", "--stop", "x", "--stop", BAD, "Hello"), "--stop is not UTF-8 (byte 1 is 0xff)"),
        (("ask", BAD), "the prompt is not UTF-8 (byte 1 is 0xff)"),
        (("sessions", "rename", "c1", BAD), "the title is not UTF-8 (byte 1 is 0xff)"),
    ],
)
def test_text_that_is_not_utf8_is_told_before_anything_is_done(
    arguments: tuple[str, ...], said: str
) -> None:
    with Store() as store:
        store.create(conversation("c1", title="before"), ())
    seen = recorded()
    assert run(arguments, seen.console) == 2
    assert seen.err.getvalue() == f"q35chat: {said}; convert it\n"
    with Store() as store:
        assert [session.title for session in store.sessions()] == ["before"]
