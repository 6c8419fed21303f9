"""Chats come back from the exports of three programs, and nothing else comes with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.errors import StoreError
from q35chat.store import Store, importing
from tests.store.builders import answer, conversation, picture, user

CHATGPT = {
    "title": "Tides",
    "create_time": 1700000000.5,
    "update_time": 1700000100,
    "conversation_id": "6f1c2b1e-aaaa-bbbb-cccc-0123456789ab",
    "current_node": "a3",
    "mapping": {
        "root": {"message": None, "parent": None, "children": ["sys"]},
        "sys": {"parent": "root", "children": ["u1"], "message": {
            "author": {"role": "system"}, "content": {"content_type": "text", "parts": [""]}}},
        "u1": {"parent": "sys", "children": ["a1", "a2"], "message": {
            "author": {"role": "user"}, "create_time": 1700000001,
            "content": {"content_type": "multimodal_text",
                        "parts": [{"asset_pointer": "file://x"}, "What makes tides?"]}}},
        "a1": {"parent": "u1", "children": [], "message": {
            "author": {"role": "assistant"}, "content": {"parts": ["The wind."]},
            "metadata": {"model_slug": "gpt-4"}}},
        "a2": {"parent": "u1", "children": ["t"], "message": {
            "author": {"role": "assistant"}, "content": {"parts": ["Let me see."]},
            "metadata": {"model_slug": "gpt-4o"}}},
        "t": {"parent": "a2", "children": ["a3"], "message": {
            "author": {"role": "tool"}, "content": {"parts": ["a page"]}}},
        "a3": {"parent": "t", "children": [], "message": {
            "author": {"role": "assistant"}, "content": {"parts": ["The moon."]}}},
    },
}  # fmt: skip
LM_STUDIO = {
    "name": "Tides again",
    "createdAt": 1735689600000,
    "systemPrompt": "Be brief.",
    "messages": [
        {"currentlySelected": 0, "versions": [
            {"type": "singleStep", "role": "user",
             "content": [{"type": "text", "text": "What makes tides?"}]}]},
        {"currentlySelected": 1, "versions": [
            {"type": "multiStep", "role": "assistant", "senderInfo": {"senderName": "qwen"},
             "steps": [{"type": "contentBlock", "content": [{"type": "text", "text": "Wind."}]}]},
            {"type": "multiStep", "role": "assistant", "senderInfo": {"senderName": "qwen"},
             "steps": [
                 {"type": "contentBlock", "style": {"type": "thinking"},
                  "content": [{"type": "text", "text": "Hm."}]},
                 {"type": "contentBlock", "content": [{"type": "text", "text": "The moon."}]}]}]},
        {"currentlySelected": 0, "versions": [
            {"type": "singleStep", "role": "user",
             "content": [{"type": "text", "text": "Thanks"}]}]},
    ],
}  # fmt: skip


def imported(folder: Path, value: object) -> tuple[Store, list[str]]:
    """A store with what a file brought, and the ids of the chats that are new."""
    file = folder / "export.json"
    file.write_text(json.dumps(value), "utf-8")
    store = Store(folder / "store")
    fresh, _ = store.import_chats(file)
    return store, [record.id for record in fresh]


def said(store: Store, ident: str) -> Sequence[tuple[str, str]]:
    """Who said what on the branch that is read."""
    record, turns = store.load(ident)
    known, found, head = {turn.id: turn for turn in turns}, [], record.head
    while head is not None:
        found.append((known[head].turn.role, known[head].turn.text))
        head = known[head].parent
    return found[::-1]


def test_our_own_export_comes_back_whole(tmp_path: Path) -> None:
    turns = (
        user("u", None, "see this", picture()),
        answer("a", "u", "a cat"),
        replace(answer("b", "u", "a dog"), note="cut", left_out=True),
    )
    with Store(tmp_path / "first") as store:
        record = replace(conversation("a-chat-of-ours", "a"), summary="of pets")
        store.create(record, turns)
        before = json.loads(store.json(record.id))
    with Store(tmp_path / "store") as store:
        store.pictures.keep(picture().sha256, picture().data)
    store, idents = imported(tmp_path, before)
    with store:
        after = json.loads(store.json(*idents))
        names = dict(
            zip(
                [it["id"] for it in before["turns"]],
                [it["id"] for it in after["turns"]],
                strict=True,
            )
        )
        for turn in before["turns"]:
            turn["id"], turn["parent"] = names[turn["id"]], names.get(turn["parent"])
            for shown in turn["pictures"]:
                shown["file"] = str(store.pictures.path(shown["sha256"]))
        before["active"] = [names[ident] for ident in before["active"]]
        assert after == before
        assert store.load(*idents)[1][0].turn.attachments[0].data == picture().data


def test_chatgpts_tree_keeps_its_branches_and_what_was_said_in_several_messages(
    tmp_path: Path,
) -> None:
    store, (ident,) = imported(tmp_path, [CHATGPT])
    with store:
        record, turns = store.load(ident)
        assert (ident, record.title) == (CHATGPT["conversation_id"], "Tides")
        assert (record.created, record.updated) == (1700000000.5, 1700000100)
        assert said(store, ident) == [
            ("user", "What makes tides?"),
            ("assistant", "Let me see.\n\nThe moon."),
        ]
        assert [turn.turn.text for turn in turns if turn.model == "gpt-4"] == ["The wind."]


def test_lm_studios_versions_are_branches_of_which_the_chosen_one_goes_on(tmp_path: Path) -> None:
    store, (ident,) = imported(tmp_path, LM_STUDIO)
    with store:
        record, turns = store.load(ident)
        assert (record.created, record.settings.system_prompt) == (1735689600.0, "Be brief.")
        assert [text for _, text in said(store, ident)] == [
            "What makes tides?", "The moon.", "Thanks",
        ]  # fmt: skip
        assert [turn.turn.text for turn in turns if turn.model == "qwen"] == ["Wind.", "The moon."]
        assert [turn.turn.reasoning for turn in turns if turn.turn.reasoning] == ["Hm."]


def test_what_is_here_already_is_not_taken_twice(tmp_path: Path) -> None:
    for chat in (CHATGPT, LM_STUDIO):
        store, first = imported(tmp_path, [chat])
        store.close()
        store, again = imported(tmp_path, [chat])
        store.close()
        assert (len(first), again) == (1, [])


def test_no_id_in_a_file_reaches_a_turn_that_is_here(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.create(conversation("mine", "u"), (user("u", None, "mine"),))
        stolen = json.loads(store.json("mine"))
    stolen["id"], stolen["turns"][0]["text"] = "another", "theirs"
    store, (ident,) = imported(tmp_path, stolen)
    with store:
        assert said(store, "mine") == [("user", "mine")]
        assert said(store, ident) == [("user", "theirs")]


@pytest.mark.parametrize(
    "value", [[], {}, 3, {"mapping": {}}, {"messages": [{}]}, {"turns": [{"role": "tool"}]}]
)
def test_what_holds_no_chat_is_refused_in_a_line(tmp_path: Path, value: object) -> None:
    with pytest.raises(StoreError, match=r"export\.json holds no chat: .* LM Studio"):
        imported(tmp_path, value)


def test_a_file_that_is_no_json_is_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{", "utf-8")
    with Store(tmp_path / "store") as store, pytest.raises(StoreError, match="it is no JSON"):
        store.import_chats(file)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner:
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["mapping", "messages", "turns", "parent", "children", "message", "author", "role", "u1",
         "content", "parts", "id", "versions", "steps", "created", "usage", "timings", "settings"]
    ), inner, max_size=4), max_leaves=12,
)  # fmt: skip


@given(st.sampled_from([CHATGPT, LM_STUDIO]), st.randoms(), _JUNK)
def test_whatever_stands_in_a_file_the_chats_in_it_are_values_or_none(
    good: dict[str, Any], chance: Any, junk: object
) -> None:
    value = json.loads(json.dumps(good))
    place: Any = value
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if chance.random() < 0.4:
            place[key] = junk
            break
        place = place[key]
    for record, turns in importing._chats(value, lambda _: None):
        assert isinstance(record.title, str)
        known = {turn.id for turn in turns}
        assert all(turn.parent is None or turn.parent in known for turn in turns)
        assert record.head is None or record.head in known
