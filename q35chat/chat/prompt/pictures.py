"""Pictures of a conversation: measured without decoding, encoded once each.

Joins the picture rules, the patches and the vision graph. Embeddings are kept by content, so a
picture costs the vision tower once however many turns show it. A vision graph with one square built
in gets every picture in a black square of that size.

----
A picture made small for a screen, decoded as carefully as it is for the model.

Knows no screen. Imports the decoders: for a worker thread, when the first picture is shown.

"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from q35chat.chat.values import Attachment
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array
from q35chat.errors import BundleError, PictureError
from q35chat.safe_text import safe_line
from q35chat.vision.geometry import geometry
from q35chat.vision.loading import decode, header, read_file
from q35chat.vision.patches import prepare
from q35chat.vision.resize import fitted_size
from q35chat.vision.rules import PictureRules

DEFAULT_CACHE_BYTES = 128 << 20


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


NO_VISION = "this bundle has no vision graph"


class Pictures:
    """The pictures of one model. `encoder` None is a bundle that reads none, `missing` says why."""

    def __init__(
        self,
        rules: PictureRules,
        grid_side: int,
        encoder: VisionEncoder | None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        *,
        missing: str = NO_VISION,
    ) -> None:
        if encoder is not None and encoder.square_side is not None:
            rules = replace(rules, square=encoder.square_side * rules.patch_size)
        self._missing = missing
        self._rules = rules
        self._grid_side = grid_side
        self._encoder = encoder
        self._budget = cache_bytes
        self._embeds: OrderedDict[int, Array] = OrderedDict()

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Read, decode and measure the picture file at `path`. Raises PictureError."""
        name = safe_line(path.name)
        if self._encoder is None:
            raise PictureError(f"{name} cannot be shown to the model: {self._missing}")
        data = read_file(path)
        picture = prepare(data, name, self._rules, self._cap(max_tokens))
        if picture.tokens > max_tokens:
            raise PictureError(
                f"the vision graph makes {picture.tokens} tokens of every picture, no more than "
                f"{max_tokens} are wanted: raise --max-image-tokens"
            )
        return Attachment(
            sha256=picture.sha256,
            name=name,
            data=data,
            width=picture.width,
            height=picture.height,
            tokens=picture.tokens,
        )

    def place(self, attachment: Attachment, max_tokens: int) -> PlacedPicture:
        """Its grid under a cap of `max_tokens`, from the file's header. Raises PictureError."""
        head = header(attachment.data, attachment.name)
        max_tokens = self._cap(max_tokens)
        width, height = fitted_size(head.width, head.height, self._rules, max_tokens)
        rows, columns = height // self._rules.factor, width // self._rules.factor
        name = f"{attachment.sha256} {rows} {columns}".encode()
        digest = hashlib.sha256(name).digest()
        key = -1 - (int.from_bytes(digest[:8]) >> 2)
        return PlacedPicture(attachment, max_tokens, rows, columns, key)

    def is_encoded(self, picture: PlacedPicture) -> bool:
        """Whether `embeds` costs nothing."""
        return picture.key in self._embeds

    def embeds(self, picture: PlacedPicture) -> Array:
        """Its rows [tokens, H] float32. Raises PictureError, BundleError without a vision graph."""
        if picture.key not in self._embeds:
            self._embeds[picture.key] = self._encode(picture)
            self._drop_oldest(keep=picture.key)
        self._embeds.move_to_end(picture.key)
        return self._embeds[picture.key]

    def close(self) -> None:
        """Free the vision graph and the embeddings that are kept."""
        self._embeds.clear()
        if self._encoder is not None:
            self._encoder.close()

    def _cap(self, max_tokens: int) -> int:
        """No more than the vision graph takes."""
        most = self._encoder.max_rows if self._encoder else None
        return max_tokens if most is None else min(max_tokens, most)

    def _encode(self, picture: PlacedPicture) -> Array:
        if self._encoder is None:
            raise BundleError(self._missing)
        rules, attachment = self._rules, picture.attachment
        ready = prepare(attachment.data, attachment.name, rules, picture.max_tokens)
        taps = geometry(ready.grid_h, ready.grid_w, self._grid_side, rules.merge_size)
        return self._encoder.encode(
            {
                "pixel_values": ready.patches,
                "position_index": taps.position_index,
                "position_weight": taps.position_weight,
                "patch_position": taps.patch_position,
            }
        )

    def _drop_oldest(self, keep: int) -> None:
        held = sum(array.nbytes for array in self._embeds.values())
        for key in list(self._embeds):
            if held <= self._budget or key == keep:
                return
            held -= self._embeds.pop(key).nbytes


_SPARE = 4
"""So many times the pixels asked for are decoded at least; fewer would show."""


def thumbnail(data: bytes, width: int, height: int) -> Image.Image | None:
    """The picture in the file `data` as the model sees it: RGB, upright, on white, in at most
    `width` x `height` pixels, proportions kept. Never made larger.

    None when it cannot be shown, whatever the reason.
    """
    try:
        picture = decode(data, "picture", (width * _SPARE, height * _SPARE))
        picture.thumbnail((width, height))
    except Exception:  # noqa: BLE001 - a file and its decoder fail in every way; the screen stays
        return None
    return picture
