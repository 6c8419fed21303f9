"""Kitty's graphics protocol with Unicode placeholders, as sequences for the terminal. Pure.

After https://sw.kovidgoyal.net/kitty/graphics-protocol/: the picture is sent once, given a
virtual placement, and drawn wherever placeholder characters in the colour of its id stand. All
answers are suppressed (`q=2`), so nothing comes back as key presses.
"""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Final

from q35chat.tui.images.gallery import Placed

_PLACEHOLDER: Final = "\U0010eeee"
_CHUNK: Final = 4096
_NUMBERS: Final = "".join(
    chr(code)
    for code in (
        0x0305, 0x030D, 0x030E, 0x0310, 0x0312, 0x033D, 0x033E, 0x033F, 0x0346, 0x034A, 0x034B,
        0x034C, 0x0350, 0x0351, 0x0352, 0x0357, 0x035B, *range(0x0363, 0x0370),
        *range(0x0483, 0x0488), *range(0x0592, 0x0596), *range(0x0597, 0x059A),
        *range(0x059C, 0x05A2), 0x05A8, 0x05A9, 0x05AB, 0x05AC, 0x05AF, 0x05C4,
        *range(0x0610, 0x0618),
    )
)  # fmt: skip
"""The combining marks that number rows and columns, from 0 to 61; no preview is larger."""


def sent(placed: Placed) -> list[str]:
    """The sequences that give the terminal a picture and its place in cells."""
    payload = base64.standard_b64encode(_png(placed)).decode("ascii")
    pieces = [payload[at : at + _CHUNK] for at in range(0, len(payload), _CHUNK)]
    sequences = [
        _command(f"q=2,m={int(number < len(pieces))}", piece)
        for number, piece in enumerate(pieces[1:], 2)
    ]
    start = f"a=t,f=100,t=d,i={placed.id},q=2,m={int(len(pieces) > 1)}"
    place = f"a=p,U=1,i={placed.id},c={placed.columns},r={placed.rows},q=2"
    return [_command(start, pieces[0]), *sequences, _command(place)]


def drawn(placed: Placed, row: int, start: int, end: int) -> str:
    """The placeholders for the cells from column `start` up to `end` of a row."""
    red, green, blue = placed.id >> 16, placed.id >> 8 & 0xFF, placed.id & 0xFF
    cells = (_PLACEHOLDER + _NUMBERS[row] + _NUMBERS[column] for column in range(start, end))
    return f"\x1b[38;2;{red};{green};{blue}m{''.join(cells)}\x1b[39m"


def deleted(placed: Placed) -> str:
    """The sequence that takes a picture off the screen and frees its memory."""
    return _command(f"a=d,d=I,i={placed.id},q=2")


def through_tmux(sequence: str) -> str:
    """The sequence so that tmux hands it on to its terminal."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _command(keys: str, payload: str = "") -> str:
    return f"\x1b_G{keys}{';' if payload else ''}{payload}\x1b\\"


def _png(placed: Placed) -> bytes:
    from PIL import Image  # noqa: PLC0415 - the first paint must not wait for it

    pixels = placed.pixels
    file = BytesIO()
    Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb).save(file, "PNG")
    return file.getvalue()
