"""Files below a folder by parts of their names, as fast in a large tree as in a small one.

The tree is walked once, in a worker thread, without what its `.gitignore` files ignore; who asks
then looks at names only. Knows no widget.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from q35chat.file_kinds import attachable
from q35chat.json_reader import read_bytes
from q35chat.tui.chat.completion import Choice

_MOST_FILES: Final = 200_000
_OLD_S: Final = 60.0
_MOST_LOOKED_AT: Final = 60
_DEEPEST: Final = 64
"""Folders within folders that are walked."""
_MOST_RULES: Final = 1_000
_LONGEST_RULE: Final = 1_000
_MOST_DEEP: Final = 3
"""`**` of a rule: with each of them it is compared in as many more ways as a path has folders."""
_SEARCHED: Final = re.compile(
    r"(?:\[\^/\]\*)+"  # one `*` or more,
    r"((?:\\.|\[\^/\]|\[\^?\]?(?:\\[^/]|[^\]\\/])*\]|[^\\\[()/*+?|{}^$])+?)"  # single letters,
    r"(?=\[\^/\]\*)"  # and the next `*`
)

Ignored = Callable[[str, bool], bool]


@dataclass(eq=False)
class FileSearch:
    """The files below `folder`; `clock` is in seconds."""

    folder: Path
    clock: Callable[[], float] = time.monotonic
    _names: tuple[str, ...] = field(default=(), init=False)
    _read: float | None = field(default=None, init=False)

    @property
    def old(self) -> bool:
        """Whether the tree is to be walked, for the first time or again."""
        return self._read is None or self.clock() - self._read > _OLD_S

    def walk(self) -> None:
        """Look what there is; for a worker thread."""
        names = []
        for name in _below(self.folder):
            names.append(name)
            if len(names) == _MOST_FILES:
                break
        self._names, self._read = tuple(names), self.clock()

    def choices(self, word: str, most: int) -> tuple[Choice, ...]:
        """The files that a word means best: its letters stand in the path in this order. Reads the
        beginnings of some; for a worker thread."""
        if not word or word.startswith(("/", "~", ".")):
            return ()
        found: list[Choice] = []
        for name in best(self._names, word)[:_MOST_LOOKED_AT]:
            path = self.folder / name
            if kind := attachable(path):
                found.append(Choice(name, "", kind, path))
            if len(found) == most:
                break
        return tuple(found)


def best(names: tuple[str, ...], word: str) -> list[str]:
    """Those that have the letters of `word` in their order, the likeliest first: names that begin
    with it, then those that hold it, then paths."""
    lower = word.lower()

    def fits(path: str) -> bool:
        rest = iter(path.lower())
        return all(letter in rest for letter in lower)

    def rank(path: str) -> tuple[int, int, str]:
        flat = path.lower()
        name = flat.rpartition("/")[2]
        held = (name.startswith(lower), lower in name, lower in flat, True).index(True)
        return held, len(path), path

    return sorted(filter(fits, names), key=rank)


def _below(folder: Path) -> Iterator[str]:
    """All files by their paths below the folder, but hidden and ignored ones."""
    waiting: list[tuple[str, tuple[Ignored, ...]]] = [("", ())]
    while waiting:
        inside, rules = waiting.pop()
        try:
            with os.scandir(folder / inside) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        if any(entry.name == ".gitignore" for entry in found):
            rules = (*rules, _rules(folder, inside))
        for entry in found:
            name = f"{inside}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name.startswith(".") or any(rule(name, is_folder) for rule in rules):
                continue
            if is_folder and name.count("/") < _DEEPEST:
                waiting.append((f"{name}/", rules))
            elif is_folder:
                continue
            else:
                yield name


def _rules(folder: Path, inside: str) -> Ignored:
    """What the `.gitignore` of a folder ignores, of what lies below it. It may come from anywhere:
    a line that makes no sense, or would be compared for long, is passed over."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where somebody completes a path
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    try:
        text = read_bytes(folder / inside / ".gitignore").decode("utf-8", "replace")
    except ValueError:
        text = ""
    found = list[GitIgnoreSpecPattern]()
    for line in text.splitlines()[:_MOST_RULES]:
        if len(line) > _LONGEST_RULE or line.count("**") > _MOST_DEEP:
            continue
        with suppress(ValueError, re.error):
            rule = GitIgnoreSpecPattern(line)
            if rule.regex is not None:
                quick = re.compile(searched_once(rule.regex.pattern))
                found.append(GitIgnoreSpecPattern(quick, rule.include))
    spec = GitIgnoreSpec(found, backend="simple")

    def ignored(name: str, is_folder: bool) -> bool:
        below = name.removeprefix(inside)
        return bool(spec.match_file(f"{below}/" if is_folder else below))

    return ignored


def searched_once(regex: str) -> str:
    """The regular expression of a `.gitignore`'s line, which finds the same, but looks for what
    stands between two `*` of a name once: where it is found first, the rest has the most room."""
    return _SEARCHED.sub(r"(?>[^/]*?\1)", regex)
