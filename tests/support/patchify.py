"""A picture cut into patches in one step."""

from __future__ import annotations

from PIL import Image

from q35chat.vision.patches import FloatArray, fit, patches
from q35chat.vision.rules import DEFAULT_MAX_IMAGE_TOKENS, PictureRules


def patchify(
    image: Image.Image, rules: PictureRules, cap: int = DEFAULT_MAX_IMAGE_TOKENS
) -> tuple[FloatArray, int, int]:
    """Patches [P, V] float32 of an RGB image and its grid's height and width in patches."""
    return patches(fit(image, rules, cap), rules)
