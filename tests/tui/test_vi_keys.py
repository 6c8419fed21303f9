"""Keys of vi do to a text what vi does."""

from __future__ import annotations

import random

import pytest

from q35chat.tui.widgets.vi_keys import Vi

CASES = {
    "the quick fo|x|x": "the quick f|o",
    "the |quick fox|dw": "the |fox",
    "|the quick fox|2dw": "|fox",
    "|the quick fox|wcwslow": "the slow| fox",
    "the quick |fox|db": "the |fox",
    "|the quick|D": "|",
    "the |quick|C!": "the !|",
    "|a\nb\nc|jdd": "a\n|c",
    "a\nb\n|c|dd": "a\n|b",
    "|a\nb|ddp": "b\n|a",
    "|a\nb|yyP": "|a\na\nb",
    "|one two|ywP": "one| one two",
    "|a\nb|2ddx": "|",
    "|ab|$aX": "abX|",
    "ab|c|IX": "X|abc",
    "|abc|AX": "abcX|",
    "|a\nb|oX": "a\nX|\nb",
    "a\n|b|OX": "a\nX|\nb",
    "|abc|rX": "|Xbc",
    "|abc|3~": "AB|C",
    "|a\nb|J": "a| b",
    "|one, two|w": "one|, two",
    "|one, two|e": "on|e, two",
    "|one two|$bb": "|one two",
    "|  ab|$^": "  |ab",
    "a\nb\n|c|ggx": "|\nb\nc",
    "|a\nb\nbc|Gx": "a\nb\n|c",
    "|👩‍🔬ab|x": "|ab",
    "|héllo|lx": "h|llo",
    "|ab cd|cc!": "!|",
    "|ab|sX": "X|b",
    "a|b|X": "|b",
    "|ab|dz": "|ab",
}


def played(text: str, at: int, keys: str) -> tuple[str, int]:
    """The text and the cursor after keys; those of other parts than vi only move by lines."""
    vi = Vi()
    vi.normal = True
    for key in keys:
        if not vi.normal:
            text, at = f"{text[:at]}{key}{text[at:]}", at + 1
            continue
        outcome = vi.press(key, text, at)
        if outcome.text is not None:
            text = f"{text[: outcome.start]}{outcome.text}{text[outcome.end :]}"
        at = outcome.cursor
        if outcome.keys == ("down",):
            at = text.find("\n", at) + 1
    return text, at


@pytest.mark.parametrize("case", CASES)
def test_a_command_changes_the_text_as_vi_does(case: str) -> None:
    before, _, rest = case.partition("|")
    behind, _, keys = rest.rpartition("|")
    text, at = played(f"{before}{behind}", len(before), keys)
    assert f"{text[:at]}|{text[at:]}" == CASES[case]


def test_escape_leaves_inserting_then_a_command_then_is_nobody_elses() -> None:
    vi = Vi()
    left = vi.escape("ab", 2)
    assert left is not None
    assert (vi.normal, left.cursor) == (True, 1)
    vi.press("d", "ab", 1)
    assert vi.escape("ab", 1) is not None
    assert vi.escape("ab", 1) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_keys_lead_outside_the_text(seed: int) -> None:
    chance = random.Random(seed)
    vi, text, at = Vi(), "one two\n\n  three, 四👩‍🔬\nfive", 0
    for _ in range(300):
        vi.normal = True
        key = chance.choice("hljk0^$wbegGxXdcyDCYsSpPuiaIAoO~Jr123")
        outcome = vi.press(key, text, at)
        if outcome.text is not None:
            assert 0 <= outcome.start <= outcome.end <= len(text)
            text = f"{text[: outcome.start]}{outcome.text}{text[outcome.end :]}"[:200]
        at = min(outcome.cursor, len(text))
        assert 0 <= outcome.cursor <= len(text) or len(text) == 200
