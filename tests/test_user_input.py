"""Numbers and paths as people type them, and what else could be typed in their place."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from q35chat import user_input
from q35chat.errors import PictureError
from q35chat.user_input import MOST, typed_number, typed_path, typed_picture


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("7", 7), ("007", 7), ("٣", 3), (str(MOST), MOST), (str(MOST + 1), None)],
)
def test_digits_are_a_number_up_to_the_largest_that_counts(text: str, number: int | None) -> None:
    assert typed_number(text) == number


@pytest.mark.parametrize("text", ["", " 1", "-1", "1.5", "1_0", "²", "one", "9" * 5_000])
def test_any_other_text_is_no_number(text: str) -> None:
    assert typed_number(text) is None


def test_a_number_over_the_bound_of_the_question_is_none() -> None:
    assert typed_number("3", 3) == 3
    assert typed_number("4", 3) is None


def test_a_home_folder_is_named_by_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert typed_path("~/a b.png") == tmp_path / "a b.png"
    assert typed_path("a/~b") == Path("a/~b")


def test_the_home_of_nobody_is_a_path_as_it_is_written() -> None:
    assert typed_path("~nobody-of-that-name/a.png") == Path("~nobody-of-that-name/a.png")


def written(path: Path) -> list[str]:
    """How terminals, shells and file managers write the path of a file with a space in its name."""
    plain = str(path)
    escaped = plain.replace(" ", "\\ ").replace("(", "\\(").replace(")", "\\)")
    address = plain.replace(" ", "%20")
    return [
        plain, f"  {plain} ", f"'{plain}'", f'"{plain}"', escaped, f"{escaped} ",
        f"file://{address}", f"file://localhost{address}", f"'file://{address}'",
    ]  # fmt: skip


def test_a_null_byte_names_nothing_and_can_be_asked_for() -> None:
    assert typed_path("a\0b") == Path("a\u2400b")
    assert not typed_path("a\0b").exists()


def test_a_path_is_understood_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "my house (1).png"
    path.touch()
    assert [typed_path(text) for text in written(path)] == [path] * len(written(path))


def test_what_is_written_is_taken_as_it_stands_where_something_is_there(tmp_path: Path) -> None:
    for name in ("'quoted'.png", "a\\ b", "back\\slash.png", "it's.png", " spaced "):
        (tmp_path / name).touch()
        assert typed_path(str(tmp_path / name)) == tmp_path / name


def test_a_path_to_be_made_is_not_changed(tmp_path: Path) -> None:
    for name in ("new", "my bundle", "it's new", "out\\dir", "a.b/c"):
        assert typed_path(str(tmp_path / name)) == tmp_path / name


@pytest.mark.parametrize(
    "text",
    [
        r"C:\Users\me\my house.png", r'"C:\Users\me\my house.png"', "c:/Users/me/my house.png",
        "file:///C:/Users/me/my%20house.png",
    ],
)  # fmt: skip
def test_a_path_of_windows_is_found_where_wsl_has_its_drives(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_input, "_DRIVES", tmp_path)
    path = tmp_path / "c" / "Users" / "me" / "my house.png"
    path.parent.mkdir(parents=True)
    path.touch()
    assert typed_path(text) == path
    assert typed_path(r"C:\new\out") == tmp_path / "c" / "new" / "out"
    assert typed_path(r"D:\new") == Path(r"D:\new")


def test_a_file_of_this_system_is_found_as_windows_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    path.touch()
    strokes = str(path).replace("/", "\\")
    assert typed_path(rf"\\wsl.localhost\Ubuntu{strokes}") == path
    assert typed_path(rf"\\wsl$\Ubuntu{strokes}") == path


@pytest.mark.parametrize("space", ["\u202f", "\u00a0"])
def test_the_space_in_the_name_of_a_macos_screenshot_may_be_typed(
    space: str, tmp_path: Path
) -> None:
    folder = tmp_path / f"Screen{space}shots"
    folder.mkdir()
    path = folder / f"Screenshot 2026-01-02 at 10.00.00{space}AM.png"
    path.touch()
    for text in written(Path(str(path).replace(space, " "))):
        assert typed_path(text) == path


def test_accents_may_be_composed_or_not(tmp_path: Path) -> None:
    path = tmp_path / unicodedata.normalize("NFD", "café.png")
    path.touch()
    assert typed_path(str(tmp_path / unicodedata.normalize("NFC", "café.png"))) == path


def test_of_two_names_spelled_alike_none_is_guessed(tmp_path: Path) -> None:
    for space in "\u202f\u00a0":
        (tmp_path / f"a{space}b.png").touch()
    assert not typed_path(str(tmp_path / "a b.png")).exists()


def test_a_folder_that_cannot_be_listed_has_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> list[Path]:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert typed_path(str(tmp_path / "a b.png")) == tmp_path / "a b.png"


@pytest.mark.parametrize("address", ["https://example.org/a//b.png?x=1&y=2#z", "HTTP://a/b.png"])
@pytest.mark.parametrize("quote", ["", "'", " "])
def test_an_address_of_the_web_is_no_picture_and_is_named_whole(address: str, quote: str) -> None:
    with pytest.raises(PictureError) as caught:
        typed_picture(f"{quote}{address}{quote}")
    assert str(caught.value).startswith(f"{address} is not fetched, nothing is; save the picture")


def test_a_long_address_of_the_web_is_named_whole() -> None:
    address = "https://example.org/" + "a" * 400
    with pytest.raises(PictureError, match=address):
        typed_picture(address)


def test_a_picture_is_named_as_any_path_is(tmp_path: Path) -> None:
    path = tmp_path / "a b.png"
    path.touch()
    assert typed_picture(f"file://{tmp_path}/a%20b.png") == path
