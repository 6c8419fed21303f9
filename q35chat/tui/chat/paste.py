"""What a paste and a typed message name: files, a fold, or plain text. Pure functions but
for a look at the files that are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from q35chat.file_kinds import attachable, is_picture
from q35chat.text import safe_text
from q35chat.user_input import typed_path

FOLD_CHARACTERS: Final = 2_000
FOLD_LINES: Final = 15
_LONGEST_PATH_PASTE: Final = 4_096
_LINE_END: Final = re.compile("\r\n|[\r\u2028\u2029]")
_WORD: Final = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|\\.|\S)+""")
"""A word as shells write one, with its quotes and escapes."""
_AFTER_A_PATH: Final = ",.;:!?)"
_FOLD: Final = re.compile(r"\[paste #([0-9]{1,9}) · [^\]\n]*\]")


def plain_text(pasted: str) -> str:
    """What is written when this is pasted: one kind of line end, no mark at the beginning that a
    file has for its encoding, and nothing that steers a terminal; all else as it is."""
    return safe_text(_LINE_END.sub("\n", pasted.removeprefix("\ufeff")))


def file_paths(pasted: str) -> tuple[Path, ...]:
    """The pictures and files that a paste names, if it names nothing else; else none.

    Several paths are separated by spaces or lines. A name alone is that of a picture or a word like
    any other.
    """
    text = pasted.strip()
    if not text or len(text) > _LONGEST_PATH_PASTE:
        return ()
    for given in ([*filter(str.strip, text.splitlines())], _WORD.findall(text)):
        paths = tuple(typed_path(word) for word in given)
        if paths and all(_is_dropped(path, word) for path, word in zip(paths, given, strict=True)):
            return paths
    return ()


def typed_files(text: str) -> tuple[str, tuple[Path, ...]]:
    """The text without the paths of pictures and files in it, and these; a long text is nobody's
    typing and stays as it is."""
    if len(text) > _LONGEST_PATH_PASTE:
        return text, ()
    paths: list[Path] = []

    def left(match: re.Match[str]) -> str:
        found = _named_file(match[1])
        if found is None:
            return match[0]
        paths.append(found[0])
        return found[1]

    rest = re.sub(rf"[ \t]*({_WORD.pattern})", left, text)
    return (rest.strip(), tuple(paths)) if paths else (text, ())


def file_before(line: str) -> tuple[int, Path, str] | None:
    """The path of a picture or a file at the end of what is typed of a line: how many characters it
    has, the file, and what of them stays behind it, such as a comma; None where there is none."""
    line = line[-_LONGEST_PATH_PASTE:]
    words = [match for match in _WORD.finditer(line) if match.end() == len(line)]
    found = _named_file(words[0][0]) if words else None
    return None if found is None else (len(words[0][0]), *found)


def _named_file(word: str) -> tuple[Path, str] | None:
    """The picture or file that a word of a message is the path of, and the word's end behind it. A
    name alone is a word like any other, unless an @ stands before it."""
    if not re.match("~|@|.*[/\\\\]", word):
        return None
    written = word.removeprefix("@")
    for named in filter(None, dict.fromkeys((written, written.rstrip(_AFTER_A_PATH)))):
        path = typed_path(named)
        if attachable(path) is not None:
            return path, written[len(named) :]
    return None


def _is_dropped(path: Path, word: str) -> bool:
    """Whether a word of a paste names a file: a picture, or any other one by a whole path."""
    whole = path.is_absolute() and re.match(r"""["']?(~|file:|/|[A-Za-z]:)""", word.strip())
    return is_picture(path) or bool(whole and _is_file(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_existing_path(text: str) -> bool:
    """Whether a one-line text is the path of something that exists, however it starts."""
    line = text.strip()
    if not line or "\n" in line or len(line) > _LONGEST_PATH_PASTE:
        return False
    return any(_exists(typed_path(word)) for word in (line, *_WORD.findall(line)[:1]))


def folds(pasted: str) -> bool:
    """Whether a paste is long enough to be shown as one token."""
    return len(pasted) > FOLD_CHARACTERS or pasted.count("\n") >= FOLD_LINES


def fold_label(number: int, pasted: str) -> str:
    """The token that stands for paste `number` in the composer."""
    lines = pasted.count("\n") + 1
    size = f"{lines:,} lines" if lines > 1 else f"{len(pasted):,} characters"
    return f"[paste #{number} · {size}]"


def unfold(text: str, kept: dict[int, str]) -> str:
    """The text with every known fold replaced by what was pasted."""

    def original(match: re.Match[str]) -> str:
        number = int(match[1])
        pasted = kept.get(number)
        return pasted if pasted is not None and match[0] == fold_label(number, pasted) else match[0]

    return _FOLD.sub(original, text) if kept else text


def fold_before(line: str, column: int) -> int:
    """Characters of the fold that ends at `column`, so that it is deleted as one; 0 if none."""
    for match in _FOLD.finditer(line):
        if match.end() == column:
            return match.end() - match.start()
    return 0


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
