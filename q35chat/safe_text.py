"""Text from files, names and models made harmless for a terminal.

Owns which characters may reach a screen as they are; knows nothing of where the text is shown.
"""

from __future__ import annotations

import re

# C0, DEL and C1 controls steer a terminal; the format characters below override the order of what
# stands around them or break its lines; marks and joiners without a width belong to scripts;
# surrogates (undecodable bytes in a file name) cannot be written at all; the last plane's private
# characters stand for cells of pictures, here and in Kitty's graphics protocol.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
    "\U00100000-\U0010ffff]"
)


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


def json_safe(document: str) -> str:
    """A JSON document with the harmful characters inside its strings as `\\uXXXX` escapes."""
    return _HARMFUL.sub(_escape, document)


def _escape(match: re.Match[str]) -> str:
    """JSON knows only escapes of four digits: beyond them a character is a surrogate pair."""
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
