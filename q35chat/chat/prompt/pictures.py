"""The pictures of a conversation: attached, placed in a prompt, encoded, and shown small.

Joins the picture rules, the patches and the vision graph. A file is decoded once, when it is
attached: what the model reads of it and what a screen shows are kept small until they are wanted.
Embeddings are kept by content, so a picture costs the vision tower once however many turns show it.
A vision graph with one square built in gets every picture in a black square of that size.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from q35chat.chat.prompt.cache import SizedCache
from q35chat.chat.values import Attachment
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array
from q35chat.errors import PictureError, Remedy
from q35chat.text import safe_line
from q35chat.vision.geometry import graph_inputs
from q35chat.vision.loading import decode, header, read_file
from q35chat.vision.patches import fit, fitted_size, patches
from q35chat.vision.rules import PictureRules

EMBEDDING_BYTES = 128 << 20
FITTED_BYTES = 64 << 20
PREVIEW_BYTES = 16 << 20
PREVIEW_SIDE = 1024
"""Pixels along the longer side of what is kept for screens."""

NO_VISION = "this bundle has no vision graph"
SEES_NONE = "this model sees no pictures"
_SPARE = 4
"""So many times the pixels asked for are decoded at least; fewer would show."""


@dataclass(frozen=True, slots=True)
class PlacedPicture:
    """A picture as a prompt sees it: `rows` x `columns` tokens, at most `max_tokens`.

    `key` names its content and size; it is negative, so that it equals no token id.
    """

    attachment: Attachment
    max_tokens: int
    rows: int
    columns: int
    key: int

    @property
    def tokens(self) -> int:
        """Slots it takes."""
        return self.rows * self.columns


class ModelPictures:
    """The pictures of one model. `encoder` None is a bundle that reads none, `missing` says why."""

    def __init__(
        self,
        rules: PictureRules | None,
        grid_side: int,
        encoder: VisionEncoder | None,
        cache_bytes: int = EMBEDDING_BYTES,
        *,
        missing: str = NO_VISION,
    ) -> None:
        if rules and encoder is not None and encoder.square_side is not None:
            rules = replace(rules, square=encoder.square_side * rules.patch_size)
        self._missing = missing
        self._rules = rules
        self._grid_side = grid_side
        self._encoder = encoder
        self._fitted = SizedCache[int, Image.Image](_bytes_of, FITTED_BYTES)
        self._embeds = SizedCache[int, Array](lambda _, rows: rows.nbytes, cache_bytes)

    @property
    def seen(self) -> bool:
        """Whether the model reads any."""
        return self._encoder is not None

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Read, decode and measure the picture file at `path`. Raises PictureError."""
        name = safe_line(path.name)
        self._seeing(name)
        return self.attach_data(read_file(path), name, max_tokens)

    def attach_data(self, data: bytes, name: str, max_tokens: int) -> Attachment:
        """Decode and measure the picture file `data`. Raises PictureError."""
        rules, _ = self._seeing(name)
        image = decode(data, name)
        digest = hashlib.sha256(data).hexdigest()
        attachment = Attachment(digest, name, data, image.width, image.height, tokens=0)
        place = self.place(attachment, max_tokens)
        if place.tokens > max_tokens:
            raise PictureError(
                f"the vision graph makes {place.tokens} tokens of every picture, no more than "
                f"{max_tokens} are wanted:",
                Remedy.MORE_PICTURE_TOKENS,
            )
        self._fitted.put(place.key, fit(image, rules, place.max_tokens, name=name))
        image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
        _previews.put(digest, image)
        return replace(attachment, tokens=place.tokens)

    def place(self, attachment: Attachment, max_tokens: int) -> PlacedPicture:
        """Its grid under a cap of `max_tokens`, from the file's header. Raises PictureError."""
        name = attachment.name
        rules, encoder = self._seeing(name)
        head = header(attachment.data, name)
        most = encoder.max_rows
        max_tokens = max_tokens if most is None else min(max_tokens, most)
        width, height = fitted_size(head.width, head.height, rules, max_tokens, name=name)
        rows, columns = height // rules.factor, width // rules.factor
        digest = hashlib.sha256(f"{attachment.sha256} {rows} {columns}".encode()).digest()
        key = -1 - (int.from_bytes(digest[:8]) >> 2)
        return PlacedPicture(attachment, max_tokens, rows, columns, key)

    def is_encoded(self, picture: PlacedPicture) -> bool:
        """Whether `embeds` costs nothing."""
        return picture.key in self._embeds

    def embeds(self, picture: PlacedPicture) -> Array:
        """Its rows [tokens, H] float32. Raises PictureError."""
        return self._embeds.of(picture.key, lambda: self._encode(picture))

    def close(self) -> None:
        """Free the vision graph and what is kept of pictures."""
        self._embeds.clear()
        self._fitted.clear()
        if self._encoder is not None:
            self._encoder.close()

    def _encode(self, picture: PlacedPicture) -> Array:
        name = picture.attachment.name
        rules, encoder = self._seeing(name)

        def decoded() -> Image.Image:
            image = decode(picture.attachment.data, name)
            return fit(image, rules, picture.max_tokens, name=name)

        fitted = self._fitted.of(picture.key, decoded)
        rows, grid_h, grid_w = patches(fitted, rules)
        side, merge = self._grid_side, rules.merge_size
        return encoder.encode(graph_inputs(rows, grid_h, grid_w, side, merge))

    def _seeing(self, name: str) -> tuple[PictureRules, VisionEncoder]:
        """What pictures are read with. Raises PictureError where none are."""
        if self._rules is None or self._encoder is None:
            raise PictureError(f"{name} cannot be shown to the model: {self._missing}")
        return self._rules, self._encoder


def thumbnail(data: bytes, width: int, height: int) -> Image.Image | None:
    """The picture in the file `data` as the model sees it: RGB, upright, on white, in at most
    `width` x `height` pixels, proportions kept. Never made larger. For a worker thread.

    None when it cannot be shown, whatever the reason.
    """
    try:
        known = _previews.get(hashlib.sha256(data).hexdigest())
        if known is not None and max(width, height) <= PREVIEW_SIDE:
            picture = known.copy()
        else:
            picture = decode(data, "picture", (width * _SPARE, height * _SPARE))
        picture.thumbnail((width, height))
    except Exception:  # noqa: BLE001 - a file and its decoder fail in every way; the screen stays
        return None
    return picture


def _bytes_of(_: object, image: Image.Image) -> int:
    return image.width * image.height * 4  # as Pillow holds RGB


_previews = SizedCache[str, Image.Image](_bytes_of, PREVIEW_BYTES)
