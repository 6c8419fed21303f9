"""A chat with damaged rows opens, shows what can be read, and can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import StoreError
from q35chat.store import Store
from tests.chat.scripted_chat import finish
from tests.doubles.scripted_backend import ScriptedBackend
from tests.store.damages import ALL, FIELDS, TEXTS, UNSEEN, damaged

HASHLESS = FIELDS["a picture without a hash"]


@pytest.mark.parametrize("statement", (ALL | UNSEEN).values(), ids=ALL | UNSEEN)
def test_a_damaged_chat_is_shown_and_gone_on_with(tmp_path: Path, statement: str) -> None:
    if statement == HASHLESS:  # its picture is gone with its name
        statement += "; DELETE FROM turn_pictures"
    with damaged(tmp_path, statement) as store:
        workspace = Workspace(store, lambda: (ScriptedBackend(), ChatSettings()))
        workspace.load()
        chat = workspace.open("c1")
        assert [step.turn.text for step in chat.steps] == TEXTS
        finished = finish(chat.send("And then?"))
        workspace.stop_idle()
        texts = [*TEXTS, "And then?", finished.text]
        assert [step.turn.text for step in chat.steps] == texts
        list(chat.regenerate())
        assert (chat.steps[-1].branch, chat.steps[-1].branches) == (1, 2)
        workspace.stop_idle()
    with Store(tmp_path) as store:
        assert "And then?" in store.markdown("c1")


def test_a_question_whose_picture_has_no_name_any_more_is_asked_again_without_it(
    tmp_path: Path,
) -> None:
    with damaged(tmp_path, HASHLESS) as store:
        workspace = Workspace(store, lambda: (ScriptedBackend(), ChatSettings()))
        workspace.load()
        chat = workspace.open("c1")
        with pytest.raises(StoreError, match="Edit that question and attach it again"):
            next(chat.send("And then?"))
        finish(chat.edit(chat.steps[0].id, "Without it"))
        workspace.stop_idle()
