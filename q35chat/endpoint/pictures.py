"""Pictures for a server: read and scaled here, as the model reads them, and sent as PNG.

What a picture takes is reckoned by the rules of Qwen3.5's image processor; a server of another
model may count otherwise. The file itself, with what cameras write into it, is not sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

from q35chat.chat.prompt.cache import SizedCache
from q35chat.chat.values import Attachment
from q35chat.errors import PictureError
from q35chat.text import safe_line
from q35chat.vision.loading import decode, header, read_file
from q35chat.vision.patches import fit, fitted_size
from q35chat.vision.rules import PictureRules

RULES: Final = PictureRules(
    patch_size=16,
    temporal_patch_size=2,
    merge_size=2,
    min_pixels=1 << 16,
    max_pixels=1 << 24,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)
_KIND: Final = "image/png"
_KEPT_BYTES: Final = 64 << 20


class SentPictures:
    """The pictures of one server; `refusal` says why it takes none, where that is known."""

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal
        self._encoded = SizedCache[tuple[str, int], bytes](lambda _, data: len(data), _KEPT_BYTES)

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Read, decode and measure the picture file at `path`. Raises PictureError."""
        name = safe_line(path.name)
        self._check(name)
        data = read_file(path)
        image = decode(data, name)
        digest = hashlib.sha256(data).hexdigest()
        attachment = Attachment(digest, name, data, image.width, image.height, tokens=0)
        return replace(attachment, tokens=tokens_of(attachment, max_tokens))

    def encode(self, attachment: Attachment, max_tokens: int) -> tuple[str, bytes]:
        """The MIME type and bytes to send of a picture that may take `max_tokens`. Raises
        PictureError."""
        self._check(attachment.name)
        return _KIND, self._encoded.of(
            (attachment.sha256, max_tokens), lambda: _encoded(attachment, max_tokens)
        )

    def _check(self, name: str) -> None:
        if self._refusal:
            raise PictureError(f"{name} cannot be shown to the model: {self._refusal}")


def tokens_of(attachment: Attachment, max_tokens: int) -> int:
    """Slots of a picture under a cap of `max_tokens`, from its header. Raises PictureError."""
    name = attachment.name
    head = header(attachment.data, name)
    width, height = fitted_size(head.width, head.height, RULES, max_tokens, name=name)
    return (width // RULES.factor) * (height // RULES.factor)


def _encoded(attachment: Attachment, max_tokens: int) -> bytes:
    image = decode(attachment.data, attachment.name)
    out = BytesIO()
    fit(image, RULES, max_tokens, name=attachment.name).save(out, "PNG")
    return out.getvalue()
