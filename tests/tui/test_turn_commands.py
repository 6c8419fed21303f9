"""Commands that change the turns, where the store refuses."""

from __future__ import annotations

import pytest

from q35chat.errors import StoreError
from tests.tui.support import opened


async def test_a_branch_that_cannot_be_kept_is_told_and_the_chat_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as chat:
        await chat.ask("one")
        await chat.press("ctrl+r")
        await chat.until(lambda: chat.conversation.steps[-1].branches == 2)
        await chat.idle()

        def refuse(*_: object) -> None:
            raise StoreError("The conversation was deleted by another q35chat. Start a new one.")

        monkeypatch.setattr(chat.conversation, "choose_branch", refuse)
        await chat.press("alt+left")
        await chat.hear("deleted by another q35chat")
        assert chat.conversation.steps[-1].branch == 1
