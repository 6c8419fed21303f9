from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from q35chat.ascend.runtime import GearedEncoder
from q35chat.chat.prompt.pictures import ModelPictures, thumbnail
from q35chat.engine.encoder import VisionEncoder
from q35chat.errors import PictureError
from q35chat.store import Store
from q35chat.vision.loading import decode
from q35chat.vision.rules import PictureRules
from tests.doubles.chat_model import picture
from tests.doubles.vision_session import VisionSession
from tests.store.builders import conversation, user
from tests.vision.files import sample

ROW_BYTES = 6 * 4


@pytest.fixture
def rules(processor: Path) -> PictureRules:
    return PictureRules.read(processor)


@pytest.fixture
def vision() -> VisionSession:
    return VisionSession()


@pytest.fixture
def pictures(rules: PictureRules, vision: VisionSession) -> ModelPictures:
    return ModelPictures(rules, 6, VisionEncoder(vision, 2))


@pytest.mark.parametrize("size", [(64, 96), (300, 40), (1000, 900)])
@pytest.mark.parametrize("cap", [1024, 9])
def test_the_place_measured_is_the_place_encoded(
    pictures: ModelPictures, size: tuple[int, int], cap: int
) -> None:
    place = pictures.place(picture(*size), cap)

    assert pictures.embeds(place).shape == (place.rows * place.columns, 6)
    assert place.tokens <= cap


def test_a_picture_costs_the_vision_graph_once(
    pictures: ModelPictures, vision: VisionSession
) -> None:
    place = pictures.place(picture(64, 64), 1024)
    assert not pictures.is_encoded(place)
    first = pictures.embeds(place)

    again = pictures.embeds(pictures.place(replace(picture(64, 64), name="moved.png"), 1024))

    assert pictures.is_encoded(place)
    assert vision.pictures == 1
    np.testing.assert_array_equal(first, again)


def test_keys_tell_contents_and_sizes_apart_and_are_no_token_ids(pictures: ModelPictures) -> None:
    red, blue = picture(640, 640), picture(640, 640, "blue")
    places = [pictures.place(red, 1024), pictures.place(blue, 1024), pictures.place(red, 9)]

    assert len({place.key for place in places}) == 3
    assert all(-(2**62) <= place.key < 0 for place in places)


def test_embeddings_over_the_budget_go_oldest_used_first(
    rules: PictureRules, vision: VisionSession
) -> None:
    store = ModelPictures(rules, 6, VisionEncoder(vision, 2), cache_bytes=2 * 4 * ROW_BYTES)
    red, blue, green = (
        store.place(picture(64, 64, color), 4) for color in ("red", "blue", "green")
    )
    for place in (red, blue, red, green):
        store.embeds(place)

    assert [store.is_encoded(place) for place in (red, blue, green)] == [True, False, True]


def test_a_picture_over_the_whole_budget_still_works(
    rules: PictureRules, vision: VisionSession
) -> None:
    store = ModelPictures(rules, 6, VisionEncoder(vision, 2), cache_bytes=1)

    assert store.embeds(store.place(picture(64, 64), 1024)).shape[1] == 6


def test_attaching_reads_and_measures_a_file(pictures: ModelPictures, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(picture(64, 96).data)

    attachment = pictures.attach(path, 1024)

    assert (attachment.name, attachment.width, attachment.height) == ("red.png", 64, 96)
    assert attachment.tokens == pictures.place(attachment, 1024).tokens
    assert attachment.sha256 == picture(64, 96).sha256


def test_a_file_whose_name_is_not_utf8_is_attached_under_a_name_that_is(
    pictures: ModelPictures, tmp_path: Path
) -> None:
    path = tmp_path / "r\udce9d\n.png"
    path.write_bytes(picture(64, 96).data)

    attachment = pictures.attach(path, 1024)
    question = user("u", None, "see", attachment)
    with Store(tmp_path / "data") as store:
        store.create(conversation(head="u"), (question,))
        assert store.load("c1")[1] == (question,)

    assert attachment.name == "r<DCE9>d\u240a.png"


@contextmanager
def decodings() -> Iterator[list[str]]:
    """The names of the pictures that are decoded meanwhile, each time it is done."""
    names: list[str] = []

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is decode.__code__:
            names.append(frame.f_locals["name"])

    sys.setprofile(seen)
    try:
        yield names
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_is_decoded_once_from_its_file_to_its_embeddings(
    pictures: ModelPictures, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "photo"
    path.write_bytes(sample(kind, 1500, 1100))
    with decodings() as names:
        attachment = pictures.attach(path, 1024)
        small = thumbnail(attachment.data, 280, 180)
        smaller = thumbnail(attachment.data, 28, 18)
        rows = pictures.embeds(pictures.place(attachment, 1024))

    assert names == ["photo"]
    assert small is not None
    assert smaller is not None
    assert (small.size, smaller.size, len(rows)) == ((245, 180), (25, 18), attachment.tokens)


def test_a_picture_of_another_day_is_read_as_one_just_attached(
    rules: PictureRules, pictures: ModelPictures, tmp_path: Path
) -> None:
    path = tmp_path / "photo"
    path.write_bytes(sample("JPEG", 300, 200))
    attachment = pictures.attach(path, 1024)
    place = pictures.place(attachment, 1024)
    fresh = ModelPictures(rules, 6, VisionEncoder(VisionSession(), 2))

    np.testing.assert_array_equal(fresh.embeds(place), pictures.embeds(place))


def test_a_larger_picture_than_is_kept_for_screens_is_decoded_for_one(
    pictures: ModelPictures, tmp_path: Path
) -> None:
    path = tmp_path / "photo"
    path.write_bytes(sample("PNG", 1500, 1100))
    attachment = pictures.attach(path, 1024)
    shown = thumbnail(attachment.data, 1400, 1400)

    assert shown is not None
    assert shown.size == (1400, 1027)


def test_attaching_what_is_no_picture_is_refused(pictures: ModelPictures, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")

    with pytest.raises(PictureError, match=r"notes\.txt is not a picture"):
        pictures.attach(path, 1024)


def test_without_a_vision_graph_pictures_are_refused(rules: PictureRules) -> None:
    store = ModelPictures(rules, 6, None)

    with pytest.raises(PictureError, match="has no vision graph"):
        store.place(picture(64, 64), 1024)


def test_a_picture_that_cannot_be_shown_is_refused_when_it_is_attached_with_the_reason(
    rules: PictureRules, tmp_path: Path
) -> None:
    (tmp_path / "red.png").write_bytes(picture(64, 96).data)
    store = ModelPictures(rules, 6, None, missing="its vision graph takes 60 patches")

    with pytest.raises(PictureError, match=r"red\.png cannot be shown .* takes 60 patches"):
        store.attach(tmp_path / "red.png", 1024)
    with pytest.raises(PictureError, match=r"^r<DCE9>d\.png cannot be shown"):
        store.attach(tmp_path / "r\udce9d.png", 1024)


@pytest.fixture
def square() -> VisionSession:
    return VisionSession(fixed_patches=64, with_geometry=False)


def test_a_graph_of_one_square_gets_every_picture_as_that(
    rules: PictureRules, square: VisionSession, tmp_path: Path
) -> None:
    store = ModelPictures(rules, 6, GearedEncoder(square, 2))
    (tmp_path / "long.png").write_bytes(picture(500, 40).data)
    attachment = store.attach(tmp_path / "long.png", 1024)
    place = store.place(attachment, 1024)

    assert (attachment.tokens, place.rows, place.columns) == (16, 4, 4)
    assert store.embeds(place).shape == (16, 6)


def test_a_graph_of_one_square_cannot_make_fewer_tokens(
    rules: PictureRules, square: VisionSession, tmp_path: Path
) -> None:
    store = ModelPictures(rules, 6, GearedEncoder(square, 2))
    (tmp_path / "red.png").write_bytes(picture(64, 64).data)

    with pytest.raises(PictureError, match="makes 16 tokens of every picture, no more than 9 are"):
        store.attach(tmp_path / "red.png", 9)
