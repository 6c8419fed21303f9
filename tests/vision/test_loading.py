from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from q35chat.errors import PictureError
from q35chat.vision.loading import MAX_FILE_BYTES, MAX_PIXELS, decode, header, read_file
from tests.vision.files import (
    FORMATS,
    claimed_size,
    encoded,
    grey_png,
    heic,
    noise,
    sample,
)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_supported_format_decodes_to_rgb(kind: str) -> None:
    image = decode(sample(kind, 40, 30), "a.bin")
    assert (image.mode, image.size) == ("RGB", (40, 30))


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_lossless_formats_keep_every_pixel(kind: str) -> None:
    original = noise(17, 9)
    assert decode(encoded(original, kind), "a").tobytes() == original.tobytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_header_tells_format_and_size_without_decoding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample(kind, 40, 30)
    monkeypatch.setattr(ImageFile.ImageFile, "load", _no_decoding)
    found = header(data, "a")
    assert (found.format, found.width, found.height) == (kind, 40, 30)


class DecodedError(BaseException):
    """Pixels were decoded; no handler for broken pictures may hide that."""


def _no_decoding(_: ImageFile.ImageFile) -> None:
    raise DecodedError


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP"])
def test_a_pixel_bomb_is_refused_before_decoding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", _no_decoding)
    with pytest.raises(PictureError, match=r"bomb\.png has 30000 x 30000 pixels, more than"):
        decode(claimed_size(kind, 30_000, 30_000), "bomb.png")


def test_a_picture_at_the_pixel_limit_passes_the_guard() -> None:
    side = 1 << 13
    found = header(claimed_size("PNG", side * 2, side), "a")
    assert found.width * found.height == MAX_PIXELS
    with pytest.raises(PictureError, match="pixels"):
        header(claimed_size("PNG", side * 2 + 1, side), "a")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_the_picture_upright(orientation: int) -> None:
    upright = np.zeros((4, 6, 3), np.uint8)
    upright[0, 0] = 255
    upright[0, 1] = (255, 0, 0)
    turn = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
        8: lambda a: np.rot90(a, 3),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(np.ascontiguousarray(turn(upright))), "PNG", exif=exif)
    assert np.array_equal(np.asarray(decode(data, "a")), upright)
    found = header(data, "a")
    assert (found.width, found.height) == (6, 4)


def _outcome(data: bytes, say: Callable[[Image.Image], str]) -> str:
    try:
        return say(decode(data, "x"))
    except PictureError as error:
        return str(error)


def _with_exif_last(png: bytes) -> bytes:
    start = png.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(png[start : start + 4], "big")
    tail = png.index(b"IEND") - 4
    return png[:start] + png[end:tail] + png[start:end] + png[tail:]


def test_a_late_orientation_in_a_png_is_seen_before_and_after_decoding() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = _with_exif_last(encoded(noise(6, 4), "PNG", exif=exif))
    assert data.index(b"eXIf") > data.index(b"IDAT")
    assert (header(data, "a").width, header(data, "a").height) == (4, 6)
    assert decode(data, "a").size == (4, 6)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["JPEG", "PNG", "WebP"]),
    orientation=st.integers(0, 9),
    flips=st.dictionaries(st.integers(20, 120), st.integers(0, 255), max_size=2),
)
def test_header_and_decoded_picture_agree_on_the_size(
    kind: str, orientation: int, flips: dict[int, int]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = bytearray(encoded(noise(24, 16), kind, exif=exif))
    for place, value in flips.items():
        data[place] = value
    size = _outcome(bytes(data), lambda image: str(image.size))
    if size.startswith("("):
        found = header(bytes(data), "x")
        assert size == str((found.width, found.height))


@pytest.mark.parametrize("value", [0, 9, 60_000])
def test_a_meaningless_orientation_leaves_the_picture_alone(value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert decode(encoded(noise(6, 4), "JPEG", exif=exif), "a").size == (6, 4)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_cost_the_picture() -> None:
    data = encoded(noise(6, 4), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode(data, "a").size == (6, 4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparency_lies_on_white(mode: str) -> None:
    clear = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    clear.putpixel((1, 0), (0, 0, 0, 255))
    layer = clear.convert("LA").convert(mode) if mode != "RGBA" else clear
    kind = "PNG" if mode != "PA" else "GIF"
    image = decode(encoded(layer if mode != "PA" else clear, kind), "a")
    assert image.getpixel((0, 0)) == (255, 255, 255)
    assert image.getpixel((1, 0)) == (0, 0, 0)


def test_half_transparent_black_is_grey() -> None:
    image = decode(encoded(Image.new("RGBA", (1, 1), (0, 0, 0, 128)), "WebP", lossless=True), "a")
    assert image.getpixel((0, 0)) == (127, 127, 127)


def test_a_transparent_palette_colour_lies_on_white() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([9, 9, 9, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    image = decode(encoded(palette, "PNG", transparency=0), "a")
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (200, 100, 50)]


@pytest.mark.parametrize(
    ("depth", "clear", "other"), [(1, 0, 1), (2, 1, 2), (4, 5, 10), (8, 5, 10), (16, 500, 501)]
)
def test_a_transparent_grey_of_any_depth_lies_on_white(depth: int, clear: int, other: int) -> None:
    data = grey_png(depth, (clear, other), clear)
    image = decode(data, "a")
    most = (1 << depth) - 1
    assert image.getpixel((0, 0)) == (255, 255, 255)
    assert image.getpixel((1, 0)) == pytest.approx((other * 255 // most,) * 3, abs=1)


def test_a_transparent_key_colour_lies_on_white() -> None:
    data = encoded(Image.new("RGB", (1, 1), (1, 2, 3)), "PNG", transparency=(1, 2, 3))
    assert decode(data, "a").getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("mode", "kind", "ink", "expected"),
    [
        ("1", "PNG", 1, (255, 255, 255)),
        ("L", "JPEG", 77, (77, 77, 77)),
        ("P", "PNG", 0, (0, 0, 0)),
        ("I;16", "PNG", 0x8000, (128, 128, 128)),
        ("I;16", "PNG", 0xFFFF, (255, 255, 255)),
        ("CMYK", "JPEG", (0, 255, 255, 0), (254, 0, 0)),
        ("RGB", "BMP", (1, 2, 3), (1, 2, 3)),
    ],
)
def test_every_pixel_mode_becomes_rgb(
    mode: str, kind: str, ink: int | tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    image = Image.new(mode, (8, 8), ink)
    assert decode(encoded(image, kind), "a").getpixel((3, 3)) == pytest.approx(expected, abs=1)


def test_the_first_frame_of_a_gif_is_taken() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data, "a.gif").getpixel((4, 4)) == (255, 0, 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_truncated_picture_says_so(kind: str) -> None:
    data = sample(kind, 200, 150)
    for keep in (30, len(data) // 2, len(data) - 40):
        with pytest.raises(PictureError, match=rf"photo is a damaged or incomplete {kind} file"):
            decode(data[:keep], "photo")


def test_text_is_not_a_picture() -> None:
    with pytest.raises(PictureError, match=r"notes\.txt is not a picture; use one of JPEG, PNG"):
        decode(b"BMW makes cars, and this is a note about them", "notes.txt")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x00\x00\x00\x18ftypavif0000", "AVIF"),
        (b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avifmiaf", "AVIF"),
        (b"II*\x00" + bytes(20), "TIFF"),
        (b"\xff\x0a" + bytes(20), "JPEG XL"),
        (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (b"%PDF-1.7", "PDF"),
        (b"<svg xmlns='x'/>", "SVG"),
        (b"\xef\xbb\xbf<svg>", "SVG"),
        ("<svg/>".encode("utf-16"), "SVG"),
        (
            b"<?xml version='1.0'?>\n<!-- by\n me --><!DOCTYPE svg [ <!ENTITY a 'b'> ]> <svg >",
            "SVG",
        ),
        (b"<?xml version='1.0'?><note/>", "XML"),
    ],
)
def test_other_formats_are_named_with_the_way_out(data: bytes, kind: str) -> None:
    with pytest.raises(PictureError, match=f"x is {kind}, which is not supported; convert it"):
        decode(data, "x")


def test_a_phones_heic_is_read_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("RGB", (64, 32), "red")
    picture.paste("blue", (0, 0, 10, 32))
    data = heic(picture, exif)
    found = header(data, "IMG_0001.HEIC")
    assert (found.format, found.width, found.height) == ("HEIC", 32, 64)
    image = decode(data, "IMG_0001.HEIC", (8, 16))
    assert (image.mode, image.size) == ("RGB", (32, 64))
    assert image.getpixel((16, 3)) == pytest.approx((0, 0, 255), abs=4)


def test_a_damaged_heic_says_so() -> None:
    data = heic(noise(64, 32))
    for keep in (30, len(data) // 2):
        with pytest.raises(PictureError, match="x is a damaged or incomplete HEIC file"):
            decode(data[:keep], "x")


def test_without_its_package_a_heic_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(PictureError, match=r"x is HEIC, .*-m pip install pillow-heif, or convert"):
        decode(b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00heic", "x")


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a"])
def test_a_few_bytes_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(PictureError) as caught:
        decode(data, "x")
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(FORMATS),
    flips=st.dictionaries(st.integers(0, 400), st.integers(0, 255)),
)
def test_a_corrupted_file_decodes_or_fails_in_one_line(kind: str, flips: dict[int, int]) -> None:
    data = bytearray(sample(kind, 24, 16))
    for place, value in flips.items():
        data[place % len(data)] = value
    outcome = _outcome(bytes(data), lambda image: image.mode)
    assert outcome == "RGB" or outcome.startswith("x ")
    assert "\n" not in outcome


def test_a_control_character_in_the_name_cannot_reach_the_terminal() -> None:
    with pytest.raises(PictureError) as caught:
        decode(b"text", "evil\x1b[31m\nname\u202egnp.exe")
    message = str(caught.value)
    assert "\x1b" not in message
    assert "\n" not in message
    assert "\u202e" not in message


def test_read_file_returns_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "照片.png"
    path.write_bytes(sample("PNG"))
    assert read_file(path) == sample("PNG")


def test_each_unreadable_path_has_its_own_message(tmp_path: Path) -> None:
    empty = tmp_path / "empty.png"
    empty.touch()
    huge = tmp_path / "huge.bmp"
    with huge.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + (1 << 20))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    reasons = {
        tmp_path / "missing.png": "does not exist",
        tmp_path: "is a folder",
        empty: r"is empty \(0 bytes\)",
        huge: "has 513 MB, more than the 512 MB",
        pipe: "is not a regular file",
        loop: "cannot read .*symbolic links",
        Path("a\x00b"): "cannot read a␀b",
        tmp_path / ("n" * 300): "cannot read .*File name too long",
    }
    for path, reason in reasons.items():
        with pytest.raises(PictureError, match=reason):
            read_file(path)


def test_a_file_without_read_permission_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(sample("PNG"))

    def denied(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)  # the tests may run as root
    with pytest.raises(PictureError, match=r"cannot read .*Permission denied; check its"):
        read_file(path)


def test_too_little_memory_for_the_pixels_is_said_with_the_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(_: ImageFile.ImageFile) -> None:
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", exhausted)
    with pytest.raises(PictureError, match=r"not enough memory to decode x \(40 x 30 pixels\)"):
        decode(sample("PNG", 40, 30), "x")
