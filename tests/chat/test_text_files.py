"""Files whose text goes into a question, and the question that has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat import text_files
from q35chat.chat.text_files import TextFile, read_text_file, split_files, with_files
from q35chat.errors import FileError
from tests.support.pdf import pdf


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_a_question_has_its_files_in_fences_with_their_names() -> None:
    file = TextFile("notes.py", "x = 1\n```\ny")
    assert with_files([file], "Why?") == (
        "File `notes.py`:\n\n````python\nx = 1\n```\ny\n````\n\nWhy?"
    )


@given(
    st.lists(st.tuples(st.sampled_from(["a.py", "b c.md", "Makefile"]), st.text("a`~\n #"))),
    st.text("File `x`:\n "),
)
def test_files_are_found_again_in_a_question(files: list[tuple[str, str]], asked: str) -> None:
    given_files = [TextFile(name, text.strip("\n")) for name, text in files]
    found, rest = split_files(with_files(given_files, asked.strip()))
    assert list(found) == given_files
    assert rest == asked.strip()


def test_a_text_is_read_without_marks_of_its_encoding(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_text_file(path) == TextFile("a.txt", "one\ntwo", path)
    wide = written(tmp_path, "b.csv", "a;ü".encode("utf-16"))
    assert read_text_file(wide).text == "a;ü"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\x7fELF\0\0\1", "is no text in UTF-8"),
        (b"x" * 5_000 + b"\xff", "(byte 5,000 is 0xff)"),
        (b"%PDF-1.4\nbroken", "cannot be read as a PDF"),
    ],
)
def test_what_has_no_text_is_refused_by_name(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(FileError, match=r"^thing\.bin ") as refused:
        read_text_file(written(tmp_path, "thing.bin", data))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder; attach a file in it"):
        read_text_file(tmp_path)
    with pytest.raises(FileError, match="is a pipe or a device; attach a file"):
        read_text_file(Path(os.devnull))
    with pytest.raises(FileError, match=r"gone\.txt cannot be read"):
        read_text_file(tmp_path / "gone.txt")
    with pytest.raises(FileError, match="cannot be read: embedded null byte"):
        read_text_file(Path("a\0.txt"))


def test_of_a_text_that_no_bundle_has_room_for_the_beginning_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MOST_BYTES", 4_100)
    file = read_text_file(written(tmp_path, "long.log", "line ü\n" * 1_000))
    assert file.part == "the first 4.0 KiB of 7.8 KiB"
    assert file.text.startswith("line ü\n")
    assert split_files(with_files([file], "x"))[0][0].part == file.part


def test_the_beginning_of_a_file_ends_with_a_line_and_says_how_much_it_is() -> None:
    part = TextFile("a.txt", "\n".join(f"line {n}" for n in range(100))).beginning(0.5)
    assert part.text.endswith("\nline 49") or part.text.endswith("\nline 50")
    assert part.part == f"the first {part.lines} of 100 lines"


def test_the_text_of_a_pdf_is_read_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = read_text_file(written(tmp_path, "paper.pdf", pdf("Hello in a PDF")))
    assert (file.name, file.text) == ("paper.pdf", "Hello in a PDF")
