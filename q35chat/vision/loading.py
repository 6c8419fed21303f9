"""Safe loading of picture files: JPEG, PNG, WebP, BMP, the first frame of a GIF, and HEIC where
`pillow-heif` is installed.

Trusts nothing in the file: the format is told by its first bytes, the size is checked before a
pixel is decoded, and every failure is one line that names the file. Knows no model.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import cast

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    WebPImagePlugin,
)

from q35chat.errors import PictureError
from q35chat.file_kinds import kind_of
from q35chat.processes import install_command
from q35chat.text import safe_line

MAX_FILE_BYTES = 512 << 20
MAX_PIXELS = 1 << 27
"""134 million: over any camera's picture, under half a gigabyte of RGB."""

_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
}
_HEIC = ("HEIC", "HEIF")
FORMATS = f"{', '.join([*_PLUGINS][:-1])} and {[*_PLUGINS][-1]}"

_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """What a picture file says of itself; width and height as it will be shown, in pixels."""

    format: str
    width: int
    height: int


def read_file(path: Path) -> bytes:
    """The bytes of the picture file at `path`, at most `MAX_FILE_BYTES`. Raises PictureError."""
    name = safe_line(str(path))
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise PictureError(f"{name} is a folder; name a picture file in it")
        if not stat.S_ISREG(status.st_mode):
            raise PictureError(f"{name} is not a regular file; copy the picture into one")
        if status.st_size > MAX_FILE_BYTES:
            raise PictureError(
                f"{name} has {status.st_size >> 20} MB, more than the {MAX_FILE_BYTES >> 20} MB "
                "a picture may have; save it smaller"
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise PictureError(f"{name} does not exist; check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise PictureError(f"cannot read {name}: {reason}; check its permissions") from error
    if not data:
        raise PictureError(f"{name} is empty (0 bytes); copy or download it again")
    return data


def header(data: bytes, name: str) -> PictureHeader:
    """Format and upright size of the picture file `data`, without decoding it.

    Raises PictureError if it is not a picture, of another format, or too large.
    """
    with _open(data, name) as image:
        width, height = image.size
        sideways = _orientation(image, data) in _SIDEWAYS
        kind = kind_of(data) or ""
    return PictureHeader(kind, *((height, width) if sideways else (width, height)))


def decode(data: bytes, name: str, enough: tuple[int, int] | None = None) -> Image.Image:
    """The picture in the file `data`: mode RGB, upright, transparency on white, first frame.

    Where its format allows it is decoded smaller, but with at least `enough` pixels (width,
    height). Raises PictureError; `name` is for messages only.
    """
    with _open(data, name) as image:
        try:
            if enough is not None and kind_of(data) == "JPEG":  # HEIC would show another picture
                image.draft("RGB", enough)
            image.load()
            turn = _TURNS.get(_orientation(image, data))
            return _to_rgb(image if turn is None else image.transpose(turn), data)
        except MemoryError as error:
            raise PictureError(
                f"not enough memory to decode {safe_line(name)} "
                f"({image.width} x {image.height} pixels); save it smaller"
            ) from error
        except Exception as error:  # plugins raise whatever a broken file led them to
            raise _damaged(data, name) from error


def _open(data: bytes, name: str) -> ImageFile.ImageFile:
    kind = kind_of(data)
    if not data:
        raise PictureError(f"{safe_line(name)} is empty (0 bytes); copy or download it again")
    if kind is None:
        raise PictureError(f"{safe_line(name)} is not a picture; use one of {FORMATS}")
    plugin = _PLUGINS.get(kind) or (_heic_plugin() if kind in _HEIC else None)
    if plugin is None:
        way = f"{install_command('pillow-heif')}, or " if kind in _HEIC else ""
        lacking = "which needs one more package" if way else "which is not supported"
        raise PictureError(
            f"{safe_line(name)} is {kind}, {lacking}; {way}convert it to one of {FORMATS}"
        )
    try:
        # the plugin itself, not Image.open: no other decoder is ever tried, and the size is ours
        # to check (Pillow's own limit is global and only warns up to twice its value)
        image = plugin(BytesIO(data))
    except Exception as error:  # SyntaxError, struct.error, KeyError, ...
        raise _damaged(data, name) from error
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width} x {image.height}"
        image.close()
        raise PictureError(
            f"{safe_line(name)} has {size} pixels, more than the {MAX_PIXELS // 10**6} million "
            "a picture may have; save it smaller"
        )
    return image


def _heic_plugin() -> type[ImageFile.ImageFile] | None:
    """Pillow's plugin of `pillow-heif`; None where that is not installed or cannot be loaded."""
    try:
        from pillow_heif import HeifImageFile  # noqa: PLC0415 - an extra, and 10 MB of library
    except ImportError:
        return None
    return cast("type[ImageFile.ImageFile]", HeifImageFile)


def _damaged(data: bytes, name: str) -> PictureError:
    return PictureError(
        f"{safe_line(name)} is a damaged or incomplete {kind_of(data)} file "
        f"({len(data)} bytes); copy or download it again"
    )


def _orientation(image: ImageFile.ImageFile, data: bytes) -> int:
    """The EXIF orientation; 1 where there is none or the EXIF block is broken.

    Decodes nothing, and says the same before and after decoding.
    """
    try:
        if isinstance(image, PngImagePlugin.PngImageFile):
            # Pillow's own getexif would decode the whole picture to look for a late block
            exif = Image.Exif()
            exif.load(_png_exif(data))
        else:
            exif = image.getexif()
        return int(exif.get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  (broken EXIF must not cost the picture)
        return 1


def _png_exif(data: bytes) -> bytes:
    """The body of the eXIf block, wherever it stands among the blocks; empty without one."""
    place = 8
    while place + 8 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        if data[place + 4 : place + 8] == b"eXIf":
            return data[place + 8 : place + 8 + length]
        place += length + 12
    return b""


def _to_rgb(image: Image.Image, data: bytes) -> Image.Image:
    if image.mode.startswith("I"):
        # 16 bits a pixel: Pillow's own conversions clip everything over 255 to white
        values = np.asarray(image.convert("I"))
        grey = (values >> 8).clip(0, 255).astype(np.uint8)
        grey[values == image.info.get("transparency", -1)] = 255
        return Image.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        _scale_transparency(image, data)
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.convert("RGB")


def _scale_transparency(image: Image.Image, data: bytes) -> None:
    """Bring the transparent value of a PNG to 8 bits: Pillow does so with the pixels alone."""
    clear = image.info.get("transparency")
    if kind_of(data) == "PNG" and image.mode in ("L", "RGB") and clear is not None:
        most = (1 << data[24]) - 1  # IHDR: the bits of a sample
        values = clear if isinstance(clear, tuple) else (clear,)
        scaled = tuple(value >> 8 if most > 255 else value * 255 // most for value in values)
        image.info["transparency"] = scaled if isinstance(clear, tuple) else scaled[0]
