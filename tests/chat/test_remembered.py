from __future__ import annotations

from q35chat.chat.prompt.cache import SizedCache


class Upper:
    """Computes, and keeps what it was asked."""

    def __init__(self, limit: int) -> None:
        self.asked: list[str] = []
        self.remembered: SizedCache[str, str] = SizedCache(self._compute, len, limit)

    def _compute(self, text: str) -> str:
        self.asked.append(text)
        return text.upper()


def test_what_was_asked_before_is_not_computed_again() -> None:
    upper = Upper(limit=10)

    assert [upper.remembered.of("tea") for _ in range(3)] == ["TEA"] * 3
    assert upper.asked == ["tea"]


def test_over_the_limit_the_longest_unused_is_forgotten() -> None:
    upper = Upper(limit=10)
    for text in ("tea", "cup", "tea", "milk", "tea", "cup"):
        upper.remembered.of(text)

    assert upper.asked == ["tea", "cup", "milk"]
    upper.remembered.of("sugar")
    for text in ("sugar", "cup", "tea"):
        upper.remembered.of(text)
    assert upper.asked == ["tea", "cup", "milk", "sugar", "tea"]


def test_more_than_the_limit_is_computed_and_not_kept() -> None:
    upper = Upper(limit=3)

    assert [upper.remembered.of("sugar") for _ in range(2)] == ["SUGAR"] * 2
    assert upper.asked == ["sugar", "sugar"]
