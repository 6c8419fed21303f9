"""What kind of file something is, told by its first bytes and by nothing else.

A leaf: decodes nothing, and knows no more of a format than how it begins.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Final, Literal

LOOKED_AT: Final = 4_096
"""So many of a file's first bytes tell its kind."""

Attachable = Literal["picture", "PDF", "text"]
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"8BPS", "PSD"),
    (b"%PDF", "PDF"),
)
_NO_PICTURES: Final = frozenset({"PDF", "XML"})
_BMP_HEADER_SIZES: Final = (12, 16, 40, 52, 56, 64, 108, 124)
_BRANDS: Final = {b"avif": "AVIF", b"avis": "AVIF"} | dict.fromkeys(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC"
)
_PARENTS: Final = (b"mif1", b"msf1")
"""Brands of the container that HEIC and AVIF share; which of the two it is, others say."""
_PROLOGUE: Final = re.compile(
    r"(?:\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE\b[^<>\[]*(?:\[.*?\]\s*)?>)*", re.DOTALL
)
_SVG: Final = re.compile(r"<(?:\w+:)?svg[\s/>]")


def kind_of(data: bytes) -> str | None:
    """The kind of the file that begins with `data`; None where it is not known here."""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    # two letters are no proof of a bitmap, the size of its second header is
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADER_SIZES:
        return "BMP"
    return _branded(data) or _markup(data[:LOOKED_AT])


def is_picture(path: Path) -> bool:
    """Whether there is a file at `path` that begins as pictures do, readable here or not."""
    return attachable(path) == "picture"


def attachable(path: Path) -> Attachable | None:
    """What the file at `path` can be attached as, told by its beginning; None for a folder, an
    empty file, one that is not there, and one that is neither text nor known here."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            return None
        with path.open("rb") as file:
            data = file.read(LOOKED_AT)
    except (OSError, ValueError):
        return None
    kind = kind_of(data)
    if kind == "PDF":
        return "PDF"
    if kind is not None and kind not in _NO_PICTURES:
        return "picture"
    return "text" if _is_text(data) else None


def _is_text(data: bytes) -> bool:
    """Whether it is the beginning of a text in UTF-8, or in UTF-16 that says so."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = len(data) == LOOKED_AT and error.start >= len(data) - 3 and "end" in error.reason
        return cut and b"\0" not in data
    return bool(data) and b"\0" not in data


def _branded(data: bytes) -> str | None:
    """HEIC or AVIF: the brands in a file's first box (ISO/IEC 14496-12, 4.3)."""
    if data[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(data[:4], "big"), len(data), LOOKED_AT)
    brands = [data[8:12], *(data[at : at + 4] for at in range(16, end, 4))]
    if brands[0] not in (*_BRANDS, *_PARENTS):
        return None
    return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), "HEIF")


def _markup(data: bytes) -> str | None:
    """SVG or other XML, behind what may stand before its first element."""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if wide else "utf-8-sig", "replace")
    prologue = _PROLOGUE.match(text)
    if _SVG.match(text, prologue.end() if prologue else 0):
        return "SVG"
    return "XML" if text.lstrip().startswith("<?xml") else None
