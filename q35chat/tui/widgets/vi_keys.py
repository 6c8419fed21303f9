"""Keys of vi for a text, as a machine of its own: a key and a text in, what becomes of it out.

Places are offsets in the whole text. Knows no widget; what only moves up and down, undoes or goes
beyond the text is told as another key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from q35chat.tui.markdown.graphemes import after, before

_WORD: Final = re.compile(r"\w+|[^\w\s]+")
_SAME: Final = {"j": "down", "k": "up", "u": "ctrl+z"}
_LONG: Final = {"D": "d$", "C": "c$", "Y": "yy", "S": "cc", "s": "cl", "x": "dl", "X": "dh"}
_OPERATORS: Final = frozenset("dcy")
_BEGUN: Final = _OPERATORS | {"g", "r"}
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class KeyEffect:
    """What a key of vi does: the text from `start` to `end` becomes `text` where that is not None,
    the cursor goes to `cursor`, and `keys` are pressed, which are not of vi."""

    cursor: int
    start: int = 0
    end: int = 0
    text: str | None = None
    keys: tuple[str, ...] = ()


class Vi:
    """Begins by inserting. `normal`: letters are commands; `yanked` is what was cut last."""

    def __init__(self) -> None:
        self.normal = False
        self.yanked = ""
        self._count = ""
        self._pending = ""

    def insert(self) -> None:
        """Letters are text from now on."""
        self.normal, self._count, self._pending = False, "", ""

    def escape(self, text: str, at: int) -> KeyEffect | None:
        """Leave inserting, or a command that is not whole; None where there is neither."""
        begun = bool(self._count or self._pending)
        was, self.normal = self.normal, True
        self._count = self._pending = ""
        if was:
            return KeyEffect(at) if begun else None
        return KeyEffect(at if at == _line_start(text, at) else before(text, at))

    def press(self, key: str, text: str, at: int) -> KeyEffect:
        """Take one character while `normal`."""
        if not self._pending and key.isdecimal() and (key != "0" or self._count):
            self._count += key
            return KeyEffect(at)
        command = self._pending + key if self._pending else _LONG.get(key, key)
        if command in _BEGUN:
            self._pending = command
            return KeyEffect(at)
        count = min(int(self._count or 1), _MOST)
        self._count = self._pending = ""
        if command in _SAME:
            return KeyEffect(at, keys=(_SAME[command],) * count)
        if command in _MOVES:
            return KeyEffect(_settled(text, _repeated(_MOVES[command], text, at, count)))
        if command[0] in _OPERATORS:
            return self._operate(command[0], command[1], text, at, count)
        return self._change(command, text, at, count)

    def _change(self, command: str, text: str, at: int, count: int) -> KeyEffect:
        """The commands that put, begin to insert or turn letters; anything else does nothing."""
        end = _line_end(text, at)
        if command in {"p", "P"} and self.yanked:
            return self._put(text, at, self.yanked * count, behind=command == "p")
        if command in set("iaIAoO"):
            self.normal = False
            return _begun(command, text, at)
        if command[0] == "r" and at < end:
            return KeyEffect(at, at, after(text, at), command[1])
        if command == "~" and at < end:
            stop = min(_repeated(after, text, at, count), end)
            return KeyEffect(_settled(text, stop), at, stop, text[at:stop].swapcase())
        if command == "J" and end < len(text):
            return KeyEffect(end, end, end + 1, " ")
        return KeyEffect(at)

    def _put(self, text: str, at: int, put: str, *, behind: bool) -> KeyEffect:
        if not put.endswith("\n"):
            place = min(after(text, at), _line_end(text, at)) if behind else at
            return KeyEffect(place + len(put) - 1, place, place, put)
        if not behind:
            place = _line_start(text, at)
            return KeyEffect(place, place, place, put)
        place = _line_end(text, at)
        return KeyEffect(place + 1, place, place, f"\n{put[:-1]}")

    def _operate(self, operator: str, motion: str, text: str, at: int, count: int) -> KeyEffect:
        """Delete, change or copy from the cursor to where a motion leads, or whole lines."""
        if motion == operator:
            return self._operate_on_lines(operator, text, at, count)
        if motion not in _MOVES:
            return KeyEffect(at)
        move = _MOVES["e" if (operator, motion) == ("c", "w") and not _blank(text, at) else motion]
        there = _repeated(move, text, at, count)
        if move is _word_end:
            there = after(text, there)
        if motion in {"w", "l"}:
            there = min(there, max(at, _line_end(text, at)))
        start, end = sorted((at, there))
        self.yanked = text[start:end] or self.yanked
        if operator == "y":
            return KeyEffect(start)
        self.normal = operator == "d"
        left = f"{text[:start]}{text[end:]}"
        return KeyEffect(_settled(left, start) if self.normal else start, start, end, "")

    def _operate_on_lines(self, operator: str, text: str, at: int, count: int) -> KeyEffect:
        start = end = _line_start(text, at)
        for _ in range(count):
            end = min(_line_end(text, end) + 1, len(text) + 1)
        stop = min(end, len(text))
        self.yanked = f"{text[start:stop].removesuffix(chr(10))}\n"
        if operator == "y":
            return KeyEffect(at)
        if operator == "c":
            self.normal = False
            return KeyEffect(start, start, stop - text[start:stop].endswith("\n"), "")
        if end > len(text) and start:  # the last line goes with the end of the one before
            return KeyEffect(_line_start(text, start - 1), start - 1, stop, "")
        return KeyEffect(start, start, stop, "")


def _begun(command: str, text: str, at: int) -> KeyEffect:
    """Where inserting begins; on a line of its own for `o` and `O`."""
    start, end = _line_start(text, at), _line_end(text, at)
    if command == "o":
        return KeyEffect(end + 1, end, end, "\n")
    if command == "O":
        return KeyEffect(start, start, start, "\n")
    places = {"i": at, "a": min(after(text, at), end), "I": _first_letter(text, at), "A": end}
    return KeyEffect(places[command])


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _blank(text: str, at: int) -> bool:
    return at >= len(text) or text[at].isspace()


def _left(text: str, at: int) -> int:
    return at if at == _line_start(text, at) else before(text, at)


def _right(text: str, at: int) -> int:
    return min(after(text, at), _line_end(text, at))


def _first_letter(text: str, at: int) -> int:
    start, end = _line_start(text, at), _line_end(text, at)
    return start + len(text[start:end]) - len(text[start:end].lstrip())


def _next_word(text: str, at: int) -> int:
    inside = next((it.end() for it in _WORD.finditer(text) if it.start() <= at < it.end()), at)
    found = _WORD.search(text, inside)
    return found.start() if found else len(text)


def _word_before(text: str, at: int) -> int:
    return next((it.start() for it in reversed([*_WORD.finditer(text, 0, at)])), 0)


def _word_end(text: str, at: int) -> int:
    found = next((it for it in _WORD.finditer(text) if it.end() > after(text, at)), None)
    return before(text, found.end()) if found else len(text)


_MOVES: Final[dict[str, Callable[[str, int], int]]] = {
    "h": _left,
    "l": _right,
    "0": _line_start,
    "^": _first_letter,
    "$": _line_end,
    "w": _next_word,
    "b": _word_before,
    "e": _word_end,
    "gg": lambda _text, _at: 0,
    "G": lambda text, _at: _line_start(text, len(text)),
}


def _repeated(move: Callable[[str, int], int], text: str, at: int, count: int) -> int:
    for _ in range(count):
        there = move(text, at)
        if there == at:
            break
        at = there
    return at


def _settled(text: str, at: int) -> int:
    """The place of a cursor that stands on a character: not behind the last one of a line."""
    at = min(at, len(text))
    end = at == _line_end(text, at) and at > _line_start(text, at)
    return before(text, at) if end else at
