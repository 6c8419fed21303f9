from __future__ import annotations

import pytest

from q35chat.chat.conversation import Conversation
from q35chat.chat.values import Attachment
from q35chat.chat.workspace import Workspace
from q35chat.errors import RuntimeFailure, UsageError
from tests.chat.scripted_chat import (
    assert_reopens_as_it_is,
    finish,
    texts,
)
from tests.doubles.scripted_backend import ScriptedBackend


def test_regenerate_puts_another_answer_beside_the_first(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("Q"))
    first = chat.steps[-1].id
    usage = finish(chat.regenerate()).usage
    assert usage.reused_tokens == usage.prompt_tokens - 1
    step = chat.steps[-1]
    assert step.id != first
    assert (step.branch, step.branches) == (1, 2)
    assert_reopens_as_it_is(workspace, chat)
    chat.choose_branch(0)
    assert chat.steps[-1].id == first
    assert_reopens_as_it_is(workspace, chat)


def test_an_earlier_answer_is_regenerated_on_its_own_branch(chat: Conversation) -> None:
    finish(chat.send("One"))
    finish(chat.send("Two"))
    first, answer, *_ = chat.steps
    finish(chat.regenerate(answer.id))
    assert [step.id for step in chat.steps[:1]] == [first.id]
    assert len(chat.steps) == 2
    chat.choose_branch(0)
    assert texts(chat)[2:] == ["Two", "Answer 2 to: Two"]


def test_regenerate_answers_a_question_that_has_no_answer(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    backend.fails_at = 0
    with pytest.raises(RuntimeFailure):
        finish(chat.send("Q"))
    backend.fails_at = None
    finish(chat.regenerate())
    assert texts(chat) == ["Q", "Answer 1 to: Q"]


def test_an_earlier_question_is_edited_with_its_pictures_and_the_first_one_kept(
    workspace: Workspace, chat: Conversation, picture: Attachment
) -> None:
    finish(chat.send("Whta?", [picture]))
    finish(chat.send("And then?"))
    question = chat.steps[0]
    finish(chat.edit(question.id, "What?", question.turn.attachments))
    assert texts(chat) == ["What?", "Answer 1 with 1 pictures to: What?"]
    assert (chat.steps[-1].branch, chat.steps[-1].branches) == (1, 2)
    assert_reopens_as_it_is(workspace, chat)
    chat.choose_branch(0)
    assert texts(chat)[0] == "Whta?"
    assert len(chat.steps) == 4


def test_an_edited_answer_is_kept_beside_the_first_and_can_go_on(
    workspace: Workspace, chat: Conversation, backend: ScriptedBackend
) -> None:
    finish(chat.send("Q"))
    assert list(chat.edit(chat.steps[-1].id, "My own words")) == []
    assert texts(chat) == ["Q", "My own words"]
    assert (chat.steps[-1].branch, chat.steps[-1].note) == (1, "edited")
    finish(chat.continue_answer())
    assert texts(chat) == ["Q", "My own words And so on."]
    assert chat.steps[-1].turn.token_ids == ()
    assert backend.prompts[-1][-1].text == "My own words"
    assert_reopens_as_it_is(workspace, chat)


def test_an_unknown_turn_or_branch_is_refused(chat: Conversation) -> None:
    finish(chat.send("Q"))
    with pytest.raises(UsageError, match="no turn 'x'"):
        next(chat.edit("x", "text"))
    with pytest.raises(UsageError, match="no version 2, only 1"):
        chat.choose_branch(1)
    with pytest.raises(UsageError, match="no version 0, only 1"):
        chat.choose_branch(-1)


def test_nothing_to_regenerate_is_said(chat: Conversation) -> None:
    with pytest.raises(UsageError, match="no question"):
        next(chat.regenerate())


def every_branch(chat: Conversation) -> list[list[str]]:
    """The turns of all branches, as going from one to the next shows them."""
    found = []
    for branch in range(chat.steps[-1].branches):
        chat.choose_branch(branch)
        assert chat.steps[-1].branch == branch
        found.append(texts(chat))
    return found


def test_every_branch_is_reached_whatever_was_edited_and_answered_again_below_another(
    workspace: Workspace, chat: Conversation
) -> None:
    finish(chat.send("Count to 3"))
    finish(chat.edit(chat.steps[0].id, "Count to 4"))
    chat.choose_branch(0)
    finish(chat.regenerate())
    assert (chat.steps[-1].branch, chat.steps[-1].branches) == (2, 3)
    three, four = (f"Answer 1 to: Count to {number}" for number in (3, 4))
    branches = [["Count to 3", three], ["Count to 4", four], ["Count to 3", three]]
    assert every_branch(chat) == branches
    assert_reopens_as_it_is(workspace, chat)


def test_a_chat_whose_first_question_was_edited_is_reached_from_below_the_edit(
    chat: Conversation,
) -> None:
    finish(chat.send("One"))
    finish(chat.send("Hello"))
    finish(chat.edit(chat.steps[0].id, "Count to 7"))
    finish(chat.send("Count to 8"))
    finish(chat.regenerate())
    questions = [branch[::2] for branch in every_branch(chat)]
    assert questions == [["One", "Hello"], *[["Count to 7", "Count to 8"]] * 2]


def test_a_branch_keeps_its_number_when_it_goes_on(chat: Conversation) -> None:
    finish(chat.send("Q"))
    finish(chat.regenerate())
    chat.choose_branch(0)
    finish(chat.send("And then?"))
    assert [(step.branch, step.branches) for step in chat.steps] == [(0, 1)] * 3 + [(0, 2)]
    assert [len(branch) for branch in every_branch(chat)] == [4, 2]


def test_a_branch_that_ends_with_a_question_is_one_of_them(
    chat: Conversation, backend: ScriptedBackend
) -> None:
    finish(chat.send("Q"))
    backend.fails_at = 0
    with pytest.raises(RuntimeFailure):
        finish(chat.edit(chat.steps[0].id, "Another"))
    assert (chat.steps[-1].branch, chat.steps[-1].branches) == (1, 2)
    assert every_branch(chat) == [["Q", "Answer 1 to: Q"], ["Another"]]
