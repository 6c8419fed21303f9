from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Finished
from q35chat.chat.values import Attachment, ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import StoreError
from tests.chat.scripted_chat import (
    assert_reopens_as_it_is,
    finish,
    open_workspace,
    stop_before,
    store_of,
    texts,
)
from tests.doubles.scripted_backend import ScriptedBackend


def test_an_answer_joins_the_conversation_and_the_store(
    workspace: Workspace, chat: Conversation
) -> None:
    finished = finish(chat.send("What is it?"))
    assert texts(chat) == ["What is it?", "Answer 1 to: What is it?"]
    assert chat.steps[1].turn.token_ids == finished.token_ids
    assert chat.steps[1].usage == finished.usage
    assert_reopens_as_it_is(workspace, chat)


def test_the_answer_is_a_step_when_its_end_is_seen(chat: Conversation) -> None:
    for event in chat.send("Hi"):
        assert len(chat.steps) == (2 if isinstance(event, Finished) else 1)


def test_a_follow_up_sends_the_whole_conversation_with_the_models_own_ids(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    first = finish(chat.send("One"))
    finish(chat.send("Two"))
    turns = backend.prompts[-1]
    assert [turn.text for turn in turns] == ["One", "Answer 1 to: One", "Two"]
    assert turns[1].token_ids == first.token_ids


def test_an_empty_conversation_is_not_stored(workspace: Workspace) -> None:
    chat = workspace.new()
    chat.change_settings(ChatSettings(thinking=True))
    assert workspace.listed() == []
    finish(chat.send("Now"))
    assert [one.id for one in workspace.listed()] == [chat.id]
    assert workspace.open(chat.id).settings().thinking


def test_the_title_is_the_first_question_until_it_is_renamed(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("What is\n the   weather? " + "x" * 100))
    assert chat.title.startswith("What is the weather? xx")
    assert len(chat.title) == 60
    workspace.rename(chat.id, "  Weather\n")
    finish(chat.send("More"))
    assert chat.title == "Weather"
    assert_reopens_as_it_is(workspace, chat)


def test_a_lost_picture_is_named_and_the_chat_stays_readable(
    workspace: Workspace, chat: Conversation, picture: Attachment, tmp_path: Path
) -> None:
    finish(chat.send("See", [picture]))
    store_of(workspace).pictures.remove(picture.sha256)
    again = open_workspace(tmp_path, ScriptedBackend()).open(chat.id)
    assert texts(again) == texts(chat)
    assert again.used_slots == 0
    assert "cat.png" in again.forecast("And?").reason
    with pytest.raises(StoreError, match=r"cat\.png.*attach it again"):
        next(again.send("And?"))
    finish(again.edit(again.steps[0].id, "See", [picture]))
    assert finish(again.send("And?")).reason == "stop"


def test_ids_of_another_vocabulary_are_kept_but_not_used(
    workspace: Workspace, chat: Conversation, tmp_path: Path
) -> None:
    finish(chat.send("Q"))
    backend = ScriptedBackend(vocabulary="other letters")
    again = open_workspace(tmp_path, backend).open(chat.id)
    finish(again.send("And?"))
    assert backend.prompts[-1][1].token_ids == ()
    assert again.steps[1].turn.token_ids == chat.steps[1].turn.token_ids
    assert backend.prompts[-1][1].text == chat.steps[1].turn.text


def test_an_answer_of_another_vocabulary_goes_on_without_ids(
    chat: Conversation, backend: ScriptedBackend, tmp_path: Path
) -> None:
    stop_before(backend, 6, chat.cancel)
    finish(chat.send("Q"))
    again = open_workspace(tmp_path, ScriptedBackend(vocabulary="other")).open(chat.id)
    finish(again.continue_answer())
    assert texts(again) == ["Q", "Answer 1 to: Q"]
    assert again.steps[-1].turn.token_ids == ()
