from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.store import Store
from tests.store.builders import answer, conversation, later, user


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.create(
        later(conversation("fruit", title="About fruit"), "a", 1.0),
        (user("u", None, "How many bananas?"), answer("a", "u", "Three BANANAS — and 100% ripe.")),
    )
    store.create(
        later(conversation("tea", title="茶的问题"), "t", 2.0),
        (user("t", None, "请问龙井茶是怎么炒制的？Ｌｏｎｇｊｉｎｇ"),),
    )
    return store


@pytest.mark.parametrize(
    ("query", "turns"),
    [
        ("banana", ["u", "a"]),
        ("BANANAS ripe", ["a"]),
        ("龙井茶", ["t"]),
        ("炒制", ["t"]),
        ("茶", ["t"]),
        ("longjing", ["t"]),
        ("100%", ["a"]),
        ("0%", ["a"]),
        ("ma ?", ["u"]),
        ("nothing like it", []),
        ("_", []),
        ('"bananas"', []),
        ('banana" OR "x', []),
        ("NEAR(", []),
        ("banana*", []),
        ("   ", []),
        ("", []),
    ],
)
def test_every_word_must_be_in_the_turn(store: Store, query: str, turns: list[str]) -> None:
    assert [hit.turn for hit in store.search(query)] == turns


@pytest.mark.parametrize(
    ("query", "sessions"),
    [("", ["tea", "fruit"]), ("banana", ["fruit"]), ("FRUIT", ["fruit"]), ("问题", ["tea"])],
)
def test_sessions_are_found_by_title_and_by_text(
    store: Store, query: str, sessions: list[str]
) -> None:
    assert [found.id for found in store.listed(query)] == sessions


def test_the_newest_conversation_comes_first(store: Store) -> None:
    store.create(later(conversation("late"), "z", 9.0), (user("z", None, "bananas again"),))
    assert [hit.session for hit in store.search("bananas")] == ["late", "fruit", "fruit"]


def test_a_changed_turn_is_found_by_its_new_text_only(store: Store) -> None:
    store.search("bananas")
    store.save(conversation("fruit"), (answer("a", "u", "Four cherries."),))
    assert [hit.turn for hit in store.search("cherries")] == ["a"]
    assert [hit.turn for hit in store.search("ripe")] == []


def test_a_deleted_conversation_is_not_found(store: Store) -> None:
    store.search("bananas")
    store.delete("fruit")
    assert store.search("bananas") == []


def test_the_excerpt_shows_the_word_on_one_line(store: Store) -> None:
    text = "before " * 30 + "the\nNEEDLE\nhere " + "after " * 30
    store.create(conversation("long"), (user("n", None, text),))
    (hit,) = store.search("needle")
    assert "the NEEDLE here" in hit.excerpt
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert len(hit.excerpt) < 100


def test_the_limit_is_of_the_turns_found(store: Store) -> None:
    turns = tuple(user(f"n{number}", None, f"item {number} zebra") for number in range(450))
    store.create(conversation("many"), turns)
    assert len(store.search("zebra", limit=1000)) == 450
    assert len(store.search("zebra", limit=7)) == 7


def test_a_conversation_is_found_by_its_summary(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create(replace(conversation("c1"), summary="They like 龙井茶."), ())
        assert [one.id for one in store.listed("龙井 like")] == ["c1"]
        assert store.listed("coffee") == []
