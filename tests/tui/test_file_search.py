"""Files are found by parts of their names after an @."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from q35chat.tui.chat.file_search import FileSearch, best, searched_once
from tests.tui.support import Chat


def tree(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text", "utf-8")


def found(folder: Path, word: str) -> list[str]:
    search = FileSearch(folder)
    search.walk()
    return [choice.label for choice in search.choices(word, 8)]


def test_a_file_is_found_anywhere_below_by_letters_in_their_order(tmp_path: Path) -> None:
    tree(tmp_path, "src/app/composer.py", "docs/compare.md", "a/b/c/other.txt")
    assert found(tmp_path, "compo") == ["src/app/composer.py"]
    assert found(tmp_path, "srcomp") == ["src/app/composer.py"]
    assert found(tmp_path, "zzz") == []
    assert found(tmp_path, "/etc") == []


def test_names_that_begin_with_the_word_come_before_those_that_hold_it(tmp_path: Path) -> None:
    names = ("x/my_test.py", "test/other.py", "deep/down/test.py", "t/e/s/t.md")
    assert best(names, "test") == [
        "deep/down/test.py",
        "x/my_test.py",
        "test/other.py",
        "t/e/s/t.md",
    ]


def test_what_is_ignored_hidden_or_binary_is_not_found(tmp_path: Path) -> None:
    tree(tmp_path, "kept.py", "build/made.py", "sub/secret.py", "sub/kept_too.py", ".git/kept.py")
    (tmp_path / ".gitignore").write_text("build/\n", "utf-8")
    (tmp_path / "sub" / ".gitignore").write_text("secret*\n", "utf-8")
    (tmp_path / "kept.bin").write_bytes(b"\0\1")
    assert found(tmp_path, "e") == ["kept.py", "sub/kept_too.py"]


@pytest.mark.parametrize(
    "slow", ["*a" * 90 + "*b", "**/a/" * 9 + "b", "*a*" * 400, "?*" * 40 + "b"]
)
def test_no_line_of_a_gitignore_is_compared_for_long(tmp_path: Path, slow: str) -> None:
    tree(tmp_path, "a" * 200, "a/" * 60 + "c", "gone/kept.py", "kept.py")
    (tmp_path / ".gitignore").write_text(f"{slow}\ngone/\n", "utf-8")
    assert found(tmp_path, "kept") == ["kept.py"]


@given(
    st.lists(
        st.sampled_from(["a", "b", "*", "?", ".", "/", "**/", "[ab]", "[!a]", r"\*"]), min_size=1
    ),
    st.lists(st.text("ab./*", min_size=1, max_size=9), min_size=1),
)
def test_a_line_of_a_gitignore_ignores_what_it_did_before_it_was_made_quick(
    parts: list[str], paths: list[str]
) -> None:
    with suppress(ValueError):
        regex = GitIgnoreSpecPattern("".join(parts)).regex
        assume(regex)
        assert regex is not None
        quick = re.compile(searched_once(regex.pattern))
        for path in paths:
            assert bool(regex.match(path)) == bool(quick.match(path)), (regex.pattern, path)


def test_what_is_no_gitignore_ignores_nothing_and_a_wrong_line_only_itself(tmp_path: Path) -> None:
    tree(tmp_path, "kept.py", "gone.py", "sub/kept_too.py")
    os.mkfifo(tmp_path / "sub" / ".gitignore")
    (tmp_path / ".gitignore").write_text("[b-a]\n\\\n!\ngone.py\n", "utf-8")
    assert found(tmp_path, "py") == ["kept.py", "sub/kept_too.py"]


def test_letters_are_looked_for_once_however_often_they_stand_in_a_path() -> None:
    path = "".join(f"{letter * 200}/" for letter in "readm")
    assert best((path, f"{path}e"), "readme") == [f"{path}e"]


def test_the_tree_is_walked_again_when_that_was_long_ago(tmp_path: Path) -> None:
    now = [0.0]
    search = FileSearch(tmp_path, clock=lambda: now[0])
    assert search.old
    search.walk()
    assert not search.old
    now[0] = 61.0
    assert search.old


async def test_a_file_deep_below_is_offered_once_the_tree_is_known(
    chat: Chat, tmp_path: Path
) -> None:
    tree(tmp_path, "deep/down/below/needle.md")
    await chat.press(*"@needle")
    await chat.see("› deep/down/below/needle.md")
    await chat.press("tab")
    await chat.until(lambda: bool(chat.screen.composer.chips.files))
    assert chat.screen.composer.chips.files[0].name == "needle.md"


async def test_enter_behind_a_word_that_names_no_file_sends_it(chat: Chat, tmp_path: Path) -> None:
    tree(tmp_path, "big_old_book.txt")
    await chat.press(*"ask @bob")
    await chat.see("› big_old_book.txt")
    await chat.press("enter")
    await chat.sent("ask @bob")
    await chat.idle()
    await chat.press(*"see @big")
    await chat.see("› big_old_book.txt")
    await chat.press("enter")
    await chat.until(lambda: bool(chat.screen.composer.chips.files))
    assert chat.written == "see "


async def test_enter_takes_a_file_that_was_chosen_with_the_arrow_keys(
    chat: Chat, tmp_path: Path
) -> None:
    tree(tmp_path, "big_old_book.txt")
    await chat.press(*"@bob")
    await chat.see("› big_old_book.txt")
    await chat.press("down", "enter")
    await chat.until(lambda: bool(chat.screen.composer.chips.files))
    assert not chat.conversation.steps
