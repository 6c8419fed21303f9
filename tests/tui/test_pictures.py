"""Pictures in the conversation and the picker, as widgets: which cells they take and give back."""

from __future__ import annotations

import asyncio
import struct
import threading
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, JpegImagePlugin

from q35chat.chat.prompt import pictures as showing
from q35chat.settings import load_settings
from q35chat.tui.images.gallery import CELLS
from q35chat.tui.images.graphics import PictureDisplay, Terminal
from q35chat.tui.images.thumbnail import half_blocks
from q35chat.tui.screens.picker import PickerScreen
from q35chat.tui.screens.settings import SettingsScreen
from q35chat.tui.widgets.picture import Picture
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.on_the_way import Hold
from tests.tui.support import NARROW, Chat, opened, picture_bytes, picture_file

CELL = (10, 20)


def kitty() -> PictureDisplay:
    return PictureDisplay("auto", Terminal("kitty", cell=CELL))


def cells(chat: Chat) -> str:
    return "".join(CELLS.findall(chat.text))


async def ask_with_picture(chat: Chat, folder: Path) -> None:
    await chat.attach(picture_file(folder))
    await chat.ask("What is it?")


async def test_a_picture_is_a_block_of_its_own_cells(tmp_path: Path) -> None:
    display = kitty()
    async with opened(picture_display=display) as chat:
        await ask_with_picture(chat, tmp_path)
        await chat.until(lambda: len(cells(chat)) > 0)
        await chat.settled()
        found = [display.gallery.find(character) for character in cells(chat)]
        assert [place and place[1:] for place in found] == [
            (row, column) for row in range(7) for column in range(28)
        ]
        assert "▀" not in chat.text


async def test_scrolling_clips_a_picture_to_what_is_seen(tmp_path: Path) -> None:
    display = kitty()
    workspace = ScriptedWorkspace([Reply("A line.\n\n" * 12)])
    async with opened(workspace, size=NARROW, picture_display=display) as chat:
        await ask_with_picture(chat, tmp_path)
        chat.screen.transcript.scroll_to(y=3, animate=False, force=True)
        await chat.until(lambda: 0 < len(cells(chat)) < 7 * 28)
        first = display.gallery.find(cells(chat)[0])
        assert first is not None
        assert first[1:] == (2, 0)


async def test_a_picture_off_the_screen_gives_its_cells_back(tmp_path: Path) -> None:
    display = kitty()
    async with opened(picture_display=display) as chat:
        await ask_with_picture(chat, tmp_path)
        await chat.until(lambda: len(cells(chat)) > 0)
        sign = cells(chat)[0]
        await chat.press("ctrl+n")
        await chat.until(lambda: not cells(chat) and display.gallery.has_removed)
        assert display.gallery.find(sign) is None


async def test_the_picker_shows_one_picture_after_another(tmp_path: Path) -> None:
    picture_file(tmp_path, "a.png")
    picture_file(tmp_path, "b.png", (32, 64))
    display = kitty()
    async with opened(picture_display=display) as chat:
        await chat.press("ctrl+o")
        await chat.until(lambda: isinstance(chat.app.screen, PickerScreen) and cells(chat) != "")
        wide = chat.app.screen.query_one(Picture).size
        await chat.press("down")
        await chat.until(lambda: display.gallery.has_removed)
        await chat.until(lambda: chat.app.screen.query_one(Picture).size.height > wide.height)
        assert display.gallery.find(cells(chat)[0]) is not None
        await chat.press("escape")
        await chat.until(lambda: cells(chat) == "")


async def test_a_picture_of_nothing_shows_nothing() -> None:
    async with opened(picture_display=kitty()) as chat:
        picture = Picture(b"no picture")
        await chat.screen.composer.mount(picture)
        await chat.app.workers.wait_for_complete()
        await chat.pilot.pause()
        assert (cells(chat), picture.size.height) == ("", 1)


@pytest.mark.parametrize("form", ["EPS", "TIFF", "PPM", "ICO", "PCX", "TGA"])
def test_no_decoder_is_tried_but_those_for_the_model(form: str) -> None:
    file = BytesIO()
    Image.new("RGB", (32, 32), (255, 0, 0)).save(file, form)
    assert half_blocks(file.getvalue(), 8, 8) == ()


def test_a_preview_is_on_white_as_the_model_sees_it() -> None:
    file = BytesIO()
    Image.new("RGBA", (16, 16), (255, 0, 0, 0)).save(file, "PNG")
    assert half_blocks(file.getvalue(), 8, 8)[0][0] == ((255, 255, 255), (255, 255, 255))


def test_a_large_photo_is_decoded_no_larger_than_its_preview_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[tuple[int, int]] = []
    load = JpegImagePlugin.JpegImageFile.load

    def spied(self: JpegImagePlugin.JpegImageFile) -> object:
        decoded.append(self.size)
        return load(self)

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", spied)
    file = BytesIO()
    Image.new("RGB", (2_048, 1_024), (0, 0, 255)).save(file, "JPEG")
    small = showing.thumbnail(file.getvalue(), 28, 18)
    assert decoded[0] == (256, 128)
    assert small is not None
    assert small.size == (28, 14)


@pytest.mark.parametrize("error", [KeyError("x"), struct.error("x"), MemoryError(), EOFError()])
async def test_whatever_goes_wrong_in_a_decoder_the_application_stays(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(showing, "decode", fail)
    async with opened(picture_display=kitty()) as chat:
        picture = Picture(picture_bytes((17, 17)))
        await chat.screen.composer.mount(picture)
        await chat.app.workers.wait_for_complete()
        await chat.pilot.pause()
        assert (cells(chat), picture.size.height) == ("", 1)
        assert chat.app.is_running


async def test_a_full_gallery_falls_back_to_half_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = kitty()
    monkeypatch.setattr(display.gallery, "add", lambda *_: None)
    async with opened(picture_display=display) as chat:
        await ask_with_picture(chat, tmp_path)
        await chat.until(lambda: "▀" * 28 in chat.text)


async def test_the_settings_change_how_pictures_are_drawn_at_once(tmp_path: Path) -> None:
    display = kitty()
    async with opened(picture_display=display) as chat:
        await ask_with_picture(chat, tmp_path)
        await chat.until(lambda: len(cells(chat)) > 0)
        chat.app.choose_pictures("blocks")
        await chat.until(lambda: "▀" * 28 in chat.text and not cells(chat))
        chat.app.choose_pictures("none")
        await chat.until(lambda: "▀" not in chat.text)
        assert "house.png 64×32" in chat.flat
        chat.app.choose_pictures("auto")
        await chat.until(lambda: len(cells(chat)) == 7 * 28)
        chat.app.choose_pictures("none")
    assert load_settings().pictures == "none"


async def test_the_settings_say_how_pictures_are_drawn() -> None:
    async with opened(size=(120, 60), picture_display=kitty()) as chat:
        await chat.press("f2")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
        await chat.see("drawn with Kitty's graphics protocol")
        chat.app.screen.query_one("#pictures").value = "none"  # type: ignore[attr-defined]
        await chat.see("not shown")
        assert chat.app.picture_display.preference == "none"


async def test_a_screen_has_not_settled_while_a_picture_is_decoded_again_for_its_new_size(
    tmp_path: Path, hold: Hold, gate: threading.Event
) -> None:
    picture_file(tmp_path)
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.until(lambda: "▀▀▀▀▀" in chat.text)
        hold(Picture, "_decode")
        await chat.pilot.resize_terminal(*NARROW)
        settled = asyncio.ensure_future(chat.settled())
        for _ in range(20):
            await chat.pilot.pause()
        assert not settled.done()
        gate.set()
        assert await settled == chat.text
        assert "▀▀▀▀▀" in chat.text
