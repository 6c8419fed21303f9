"""A picture made small for a screen, decoded as carefully as it is for the model.

Knows no screen. Imports the decoders: for a worker thread, when the first picture is shown.
"""

from __future__ import annotations

from PIL import Image

from q35chat.vision.loading import decode

_SPARE = 4
"""So many times the pixels asked for are decoded at least; fewer would show."""


def shown_small(data: bytes, width: int, height: int) -> Image.Image | None:
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
