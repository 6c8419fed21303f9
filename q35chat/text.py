"""Text for people: counts, sizes and dates in words, words for a shell, and nothing in them that
steers a terminal.

A leaf. Owns which characters may reach a screen as they are; knows nothing of where text is shown.
"""

from __future__ import annotations

import datetime
import re
import shlex
import time
import unicodedata
from collections.abc import Sequence

# C0, DEL and C1 controls steer a terminal; the format characters below override the order of what
# stands around them or break its lines; marks and joiners without a width belong to scripts;
# surrogates (undecodable bytes in a file name) cannot be written at all; the last plane's private
# characters stand for cells of pictures, here and in Kitty's graphics protocol.
HARMFUL = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
    "\U00100000-\U0010ffff]"
)
_HARMFUL = re.compile(HARMFUL)
_NOT_PLAIN = re.compile(r"[\\'\x00-\x1f\x7f]|[^\x00-\x7f]")


LATEST_TIME = 253_402_300_799.0
"""The last second of the year 9999, since the epoch."""


def _picture(match: re.Match[str]) -> str:
    char = match.group()
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"<{code:02X}>"


def safe_text(text: str) -> str:
    """`text` with every character that steers a terminal made visible; newlines and tabs stay.

    Works character by character, so a stream may be cut anywhere.
    """
    return _HARMFUL.sub(_picture, text)


def safe_line(text: str, limit: int = 200) -> str:
    """`text` on one line of at most `limit` characters, with nothing that steers a terminal."""
    line = safe_text(text.replace("\n", "\u240a").replace("\t", "\u2409"))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def folded(text: str) -> str:
    """`text` in the one spelling of a search: compatibility composition and folded case."""
    return unicodedata.normalize("NFKC", text).casefold()


def json_safe(document: str) -> str:
    """A JSON document with the harmful characters inside its strings as `\\uXXXX` escapes."""
    return _HARMFUL.sub(_json_escape, document)


def _json_escape(match: re.Match[str]) -> str:
    """JSON knows only escapes of four digits: beyond them a character is a surrogate pair."""
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def quoted(text: str) -> str:
    """`text` as one word for a shell; a newline and whatever else steers a terminal as escapes."""
    if safe_line(text, len(text)) == text:
        return shlex.quote(text)
    return f"$'{_NOT_PLAIN.sub(_shell_escape, text)}'"


def _shell_escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in "\\'":
        return f"\\{char}"
    if char == "\n":
        return r"\n"
    if safe_line(char) == char:
        return char
    is_byte = "\udc80" <= char <= "\udcff"  # of a file name that is not UTF-8
    data = char.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def pluralise(number: float, noun: str, plural: str = "") -> str:
    """A whole number and what it counts: `1 turn`, `1,024 turns`."""
    whole = round(number)
    return f"{whole:,} {noun if whole == 1 else plural or f'{noun}s'}"


def turn_count(turns: int) -> str:
    """How long a chat is, by its questions; one without any was begun from a summary."""
    return pluralise(turns, "turn") if turns else "from a summary"


def readable_size(count_of_bytes: float) -> str:
    """Bytes in the largest binary unit that keeps the number at least 1: "3.2 GiB"."""
    size = float(count_of_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count_of_bytes:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def now() -> float:
    """Seconds since the epoch; of a clock that is set to no date of a calendar, the nearest one."""
    return min(max(time.time(), 0.0), LATEST_TIME)


def timestamp() -> str:
    """Now, in UTC, to the second, as ISO 8601 has it."""
    return datetime.datetime.fromtimestamp(now(), datetime.UTC).isoformat(timespec="seconds")


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of `values` that at least `percent` % of them do not exceed; 0 of none."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1] if values else 0.0
