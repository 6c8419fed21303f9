from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.prompt.cache import SizedCache


class Upper:
    """Computes, and keeps what it was asked."""

    def __init__(self, limit: int) -> None:
        self.asked: list[str] = []
        self.cache = SizedCache[str, str](lambda text, _: len(text), limit)

    def of(self, text: str) -> str:
        def compute() -> str:
            self.asked.append(text)
            return text.upper()

        return self.cache.of(text, compute)


def test_over_the_limit_the_longest_unused_is_forgotten() -> None:
    upper = Upper(limit=10)
    for text in ("tea", "cup", "tea", "milk", "tea", "cup"):
        upper.of(text)

    assert upper.asked == ["tea", "cup", "milk"]
    upper.of("sugar")
    for text in ("sugar", "cup", "tea"):
        upper.of(text)
    assert upper.asked == ["tea", "cup", "milk", "sugar", "tea"]


@given(st.lists(st.sampled_from(["", "a", "tea", "cup", "sugar"])), st.integers(0, 12))
def test_every_value_is_right_and_what_is_held_is_within_the_limit(
    texts: Sequence[str], limit: int
) -> None:
    upper = Upper(limit)
    for text in texts:
        held = text in upper.cache
        asked = len(upper.asked)
        assert upper.of(text) == text.upper()
        assert len(upper.asked) == asked + (not held)
        assert sum(len(one) for one in set(texts) if one in upper.cache) <= limit
        assert (text in upper.cache) == (len(text) <= limit)
