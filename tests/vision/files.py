"""Picture files made in memory, good and bad."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image

FORMATS = ("JPEG", "PNG", "WebP", "GIF", "BMP")


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def sample(kind: str, width: int = 40, height: int = 30) -> bytes:
    return encoded(noise(width, height), kind)


def claimed_size(kind: str, width: int, height: int) -> bytes:
    """A small file whose header claims `width` x `height` pixels."""
    if kind == "PNG":
        return png_claiming(width, height)
    data = bytearray(sample(kind))
    if kind == "JPEG":
        frame = data.index(b"\xff\xc0")
        data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", width, height)
    else:
        data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


def png_claiming(width: int, height: int) -> bytes:
    return _png(struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), bytes(1000))


def grey_png(depth: int, values: tuple[int, int], clear: int) -> bytes:
    """Two grey pixels of so many bits; those with the value `clear` are transparent."""
    bits = "".join(f"{value:0{depth}b}" for value in values).ljust(8, "0")
    row = int(bits, 2).to_bytes(len(bits) // 8, "big")
    head = struct.pack(">IIBBBBB", 2, 1, depth, 0, 0, 0, 0)
    return _png(head, b"\0" + row, (b"tRNS", struct.pack(">H", clear)))


def heic(image: Image.Image, exif: Image.Exif | None = None) -> bytes:
    buffer = BytesIO()
    options = {"exif": exif.tobytes()} if exif else {}
    pillow_heif.from_pillow(image).save(buffer, quality=95, **options)
    return buffer.getvalue()


def _png(head: bytes, rows: bytes, *more: tuple[bytes, bytes]) -> bytes:
    chunks = ((b"IHDR", head), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
