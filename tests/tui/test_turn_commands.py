"""Commands that change the turns, where the store refuses."""

from __future__ import annotations

import pytest

from q35chat.errors import StoreError
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened


async def test_a_branch_that_cannot_be_kept_is_told_and_the_chat_goes_on(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.ask("one")
    await chat.press("alt+r")
    await chat.until(lambda: chat.conversation.steps[-1].branches == 2)
    await chat.idle()

    def refuse(*_: object) -> None:
        raise StoreError("The chat was deleted by another q35chat. Start a new one.")

    monkeypatch.setattr(chat.conversation, "choose_branch", refuse)
    await chat.press("alt+left")
    await chat.hear("deleted by another q35chat")
    assert chat.conversation.steps[-1].branch == 1


@pytest.mark.parametrize("command", ["drop", "think", "code"])
async def test_a_number_of_more_digits_than_python_reads_is_refused_in_a_line(
    command: str,
) -> None:
    async with opened(ScriptedWorkspace([Reply("```sh\nls\n```\n")])) as chat:
        await chat.ask("one")
        await chat.ask("two")
        before = chat.conversation.settings()
        await chat.send(f"/{command} {'9' * 5_000}")
        await chat.hear(f"“{'9' * 39}…”")
        assert len(chat.said) < 200
        assert chat.conversation.settings() == before


@pytest.mark.parametrize(
    ("command", "words"), [("image", "a.png does not exist"), ("export", "Written to")]
)
async def test_a_path_in_the_home_of_nobody_is_a_path_like_any_other(
    chat: Chat, command: str, words: str
) -> None:
    await chat.ask("one")
    await chat.send(f"/{command} ~nobody-of-that-name/a.png")
    await chat.hear(words)
