"""What is written to the terminal for pictures, obeyed by a strict double of one."""

from __future__ import annotations

import io
import random
from io import BytesIO

import pytest
from PIL import Image

from q35chat.tui.images.gallery import FIRST, LAST, Gallery, Placed
from q35chat.tui.images.graphics import GraphicsProtocol, PictureDisplay, Terminal
from q35chat.tui.images.painting import PictureFile
from q35chat.tui.images.thumbnail import coarse, grid, half_blocks
from q35chat.tui.text import clean
from tests.doubles.picture_terminal import PictureTerminal
from tests.tui.support import picture_bytes

CELL = (4, 8)
ALTERNATE, BACK = "\x1b[?1049h", "\x1b[?1049l"


class Screen:
    """A file of pictures in front of a terminal."""

    def __init__(self, protocol: GraphicsProtocol, *, in_tmux: bool = False) -> None:
        self.raw = io.StringIO()
        self.display = PictureDisplay("auto", Terminal(protocol, in_tmux, cell=CELL))
        self.file = PictureFile(self.raw, self.display)
        self.terminal = PictureTerminal(CELL)
        self._fed = 0

    def write(self, text: str) -> None:
        self.file.write(text)
        self.terminal.feed(self.raw.getvalue()[self._fed :])
        self._fed = len(self.raw.getvalue())

    def at(self, x: int, y: int, text: str) -> None:
        self.write(f"\x1b[{y + 1};{x + 1}H{text}")

    def place(self, columns: int = 4, rows: int = 2) -> Placed:
        placed = self.display.gallery.add(picture(columns, rows), columns, rows)
        assert placed is not None
        return placed


def picture(columns: int = 4, rows: int = 2) -> Image.Image:
    """Left half red, right half blue."""
    return Image.open(BytesIO(picture_bytes((columns * CELL[0], rows * CELL[1]))))


def test_a_picture_is_sent_once_and_drawn_where_its_cells_stand() -> None:
    screen = Screen("kitty")
    placed = screen.place()
    for row in range(2):
        screen.at(3, 5 + row, f"ab{placed.line(row)}cd")
    terminal = screen.terminal
    assert terminal.row(5) == terminal.row(6) == "   ab####cd"
    assert [terminal.cells[5 + column, 6] for column in range(4)] == [
        (placed.id, 1, column) for column in range(4)
    ]
    assert terminal.sizes == {placed.id: (4, 2)}
    image = terminal.images[placed.id]
    assert (image.size, image.getpixel((0, 0))) == ((16, 16), (255, 0, 0))
    assert screen.raw.getvalue().count("a=t") == 1


def test_a_part_of_a_picture_is_drawn_as_that_part() -> None:
    screen = Screen("kitty")
    placed = screen.place()
    screen.at(0, 0, placed.line(1)[2:])
    assert [screen.terminal.cells[x, 0] for x in (0, 1)] == [(placed.id, 1, 2), (placed.id, 1, 3)]


def test_a_large_picture_is_sent_in_pieces_the_protocol_allows() -> None:
    screen = Screen("kitty")
    noise = random.Random(1).randbytes(120 * 120 * 3)
    placed = screen.display.gallery.add(Image.frombytes("RGB", (120, 120), noise), 6, 3)
    assert placed is not None
    screen.at(0, 0, placed.line(0))
    assert screen.raw.getvalue().count("\x1b_G") > 3
    assert screen.terminal.images[placed.id].tobytes() == noise


def test_a_picture_that_is_gone_is_deleted_and_its_cells_are_blank() -> None:
    screen = Screen("kitty")
    placed, other = screen.place(), screen.place()
    screen.at(0, 0, placed.line(0))
    screen.at(0, 1, other.line(0))
    screen.display.gallery.remove(placed)
    screen.at(0, 0, placed.line(0) + "x")
    assert screen.terminal.row(0) == "    x"
    assert set(screen.terminal.images) == {other.id}


@pytest.mark.parametrize("leaving", [BACK, f"x{BACK}\x1b[?25h"])
def test_leaving_the_screen_frees_what_was_sent_before_it_is_left(leaving: str) -> None:
    screen = Screen("kitty")
    placed = screen.place()
    screen.write(ALTERNATE)
    screen.at(0, 0, placed.line(0))
    screen.write(leaving)
    assert screen.terminal.images == {}
    raw = screen.raw.getvalue()
    assert raw.index("a=d") < raw.index(BACK)


def test_after_a_suspension_pictures_are_sent_again() -> None:
    screen = Screen("kitty")
    placed = screen.place()
    screen.at(0, 0, placed.line(0))
    screen.write(BACK)
    screen.write(ALTERNATE)
    screen.at(0, 0, placed.line(0))
    assert set(screen.terminal.images) == {placed.id}


def test_a_removed_picture_that_was_never_drawn_is_never_deleted() -> None:
    screen = Screen("kitty")
    screen.display.gallery.remove(screen.place())
    screen.write("text")
    assert screen.raw.getvalue() == "text"


def test_tmux_is_asked_to_hand_the_picture_on() -> None:
    screen = Screen("kitty", in_tmux=True)
    placed = screen.place()
    screen.file.write(placed.line(0))
    first, *_, last = screen.raw.getvalue().split("\x1bPtmux;")[1:]
    assert first.startswith("\x1b\x1b_Ga=t,")
    assert first.endswith("\x1b\x1b\\\x1b\\")
    assert "U=1" in last


@pytest.mark.parametrize("protocol", ["blocks", "none"])
def test_without_terminal_graphics_no_cell_reaches_the_terminal(protocol: GraphicsProtocol) -> None:
    screen = Screen(protocol)
    screen.at(0, 0, f"a{screen.place().line(0)}b{chr(LAST)}c")
    assert screen.terminal.row(0) == "a    b c"


def test_no_text_can_pretend_to_be_a_picture() -> None:
    for code in (FIRST, 0x10EEEE, LAST):
        assert clean(f"a{chr(code)}b") == f"a<{code:X}>b"


def test_sixel_paints_each_cell_with_its_part() -> None:
    screen = Screen("sixel")
    placed = screen.place()
    for row in range(2):
        screen.at(1, 3 + row, f"{placed.line(row)}x")
    terminal = screen.terminal
    assert terminal.row(3) == terminal.row(4) == "     x"
    assert set(terminal.painted) == {(x, y) for x in range(4, 20) for y in range(24, 40)}
    assert (terminal.painted[4, 24], terminal.painted[19, 39]) == ((100, 0, 0), (0, 0, 100))


def test_sixel_paints_a_part_alone_and_leaves_the_rest() -> None:
    screen = Screen("sixel")
    placed = screen.place()
    screen.at(2, 1, placed.line(0)[1:3])
    assert set(screen.terminal.painted) == {(x, y) for x in range(8, 16) for y in range(8, 16)}
    screen.at(2, 1, "t")
    assert min(x for x, _ in screen.terminal.painted) == 12


def test_sixel_keeps_every_colour_near_its_own() -> None:
    screen = Screen("sixel")
    ramp = b"".join(bytes((x * 7, y * 7, 40)) for y in range(16) for x in range(32))
    placed = screen.display.gallery.add(Image.frombytes("RGB", (32, 16), ramp), 8, 2)
    assert placed is not None
    for row in range(2):
        screen.at(0, row, placed.line(row))
    for (x, y), (red, green, blue) in screen.terminal.painted.items():
        assert abs(red * 2.55 - x * 7) < 32
        assert abs(green * 2.55 - y * 7) < 32
        assert abs(blue * 2.55 - 40) < 12


def test_characters_are_given_back_and_never_shared() -> None:
    gallery = Gallery()
    first, second = gallery.add(picture(), 4, 2), gallery.add(picture(), 4, 2)
    assert first is not None
    assert second is not None
    assert first.end <= second.first
    gallery.remove(first)
    assert gallery.find(chr(first.first)) is None
    wide, third = gallery.add(picture(), 40, 2), gallery.add(picture(), 4, 2)
    assert wide is not None
    assert third is not None
    assert third.first == first.first
    assert gallery.find(chr(wide.first + 41)) == (wide, 1, 1)


def test_a_gallery_without_room_says_so() -> None:
    gallery = Gallery()
    assert gallery.add(picture(), 300, 218) is not None
    assert gallery.add(picture(), 50, 50) is None
    assert coarse(picture(), 4, 2)[0][0] == ((255, 0, 0), (255, 0, 0))


@pytest.mark.parametrize("size", [(64, 32), (4000, 3000), (30, 900), (7, 5), (1, 1)])
def test_graphics_take_the_room_of_half_blocks(size: tuple[int, int]) -> None:
    data = picture_bytes(size)
    cells = half_blocks(data, 28, 9)
    pixels = Image.open(BytesIO(data))
    pixels.thumbnail((280, 180))
    columns, rows = grid(pixels, 28, 9, (10, 20))
    assert abs(columns - len(cells[0])) <= 1
    assert abs(rows - len(cells)) <= 1
    assert grid(pixels, 28, 9, (10, 25))[1] <= rows
