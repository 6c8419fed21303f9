from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.turn.answer import StopMatcher


def stream(stops: list[str], *parts: str) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(part) for part in parts]
    return [*shown, matcher.flush()], matcher.stopped


def test_without_stops_everything_passes_at_once() -> None:
    assert stream([], "a", "b") == (["a", "b", ""], False)


def test_text_ends_before_the_stop() -> None:
    assert stream(["END"], "one END two") == (["one ", ""], True)


def test_a_possible_start_is_held_until_it_is_known() -> None:
    assert stream(["END"], "a E", "N", "x") == (["a ", "", "ENx", ""], False)


def test_what_is_held_comes_out_at_the_end() -> None:
    assert stream(["END"], "a EN") == (["a ", "EN"], False)


def test_a_stop_over_several_parts_is_found_and_never_shown() -> None:
    assert stream(["END"], "a E", "N", "D b") == (["a ", "", "", ""], True)


def test_nothing_comes_after_a_stop() -> None:
    assert stream(["\n"], "a\nb", "c") == (["a", "", ""], True)


def test_the_first_of_several_stops_counts() -> None:
    assert stream(["cd", "b"], "abcd") == (["a", ""], True)


def test_an_empty_stop_is_none() -> None:
    assert stream([""], "a") == (["a", ""], False)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=3), max_size=12),
)
def test_any_split_shows_the_text_before_the_first_stop(stops: list[str], parts: list[str]) -> None:
    text = "".join(parts)
    places = [text.find(stop) for stop in stops if stop in text]

    shown, stopped = stream(stops, *parts)

    assert stopped == bool(places)
    assert len("".join(shown)) <= len(text)
    assert text.startswith("".join(shown))
    assert not any(stop in "".join(shown) for stop in stops)
    if not places:
        assert "".join(shown) == text
