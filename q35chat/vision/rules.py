"""How the checkpoint wants its pictures: `preprocessor_config.json` as a value.

Knows the file's fields; touches no picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from q35chat.errors import BundleError
from q35chat.json_reader import Fields, read_json

DEFAULT_MAX_IMAGE_TOKENS = 1024
"""A 12-megapixel photo is about 11,800 tokens under the checkpoint's own limit alone."""

_BICUBIC: Final = 3
_LAST_FILTER: Final = 5
_MOST_SIDE: Final = 256
_MOST_FRAMES: Final = 16
_MOST_MERGED: Final = 16
_MOST_PIXELS: Final = 2**40
_MOST_SCALE: Final = 1e6
_LEAST_SCALE: Final = 1e-6
_PATCHES: Final = ("patch_size", "temporal_patch_size", "merge_size")
_ADVICE: Final = "export the model again"


@dataclass(frozen=True, slots=True)
class PictureRules:
    """Sizes in pixels. `merge_size` patches a side form one token.

    `square` is the side of the black square that every picture is put into; None keeps its shape.
    """

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    rescale_factor: float = 1 / 255
    resample: int = _BICUBIC
    square: int | None = None

    @property
    def factor(self) -> int:
        """Pixels along one side of a token."""
        return self.patch_size * self.merge_size

    @property
    def patch_values(self) -> int:
        """Numbers in one row of patches."""
        return 3 * self.temporal_patch_size * self.patch_size**2

    def check(self, *, patch_size: int, temporal_patch_size: int, merge_size: int) -> None:
        """Raise BundleError where the model was made for other patches."""
        model = (patch_size, temporal_patch_size, merge_size)
        rules = (self.patch_size, self.temporal_patch_size, self.merge_size)
        for name, wanted, found in zip(_PATCHES, model, rules, strict=True):
            if found != wanted:
                raise BundleError(
                    f"preprocessor_config.json says {name} {found:,}, the model has {wanted:,}; "
                    f"{_ADVICE}"
                )

    @classmethod
    def read(cls, path: Path) -> PictureRules:
        """The rules in the JSON file at `path`. Raises BundleError."""
        try:
            config = read_json(path)
        except ValueError as error:
            raise BundleError(
                f"cannot read the picture rules in {path}: {error}; {_ADVICE}"
            ) from error
        return cls.from_config(config, str(path))

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], where: str = "preprocessor_config.json"
    ) -> PictureRules:
        """The rules in a decoded `preprocessor_config.json`; `where` names the file in messages.

        Raises BundleError.
        """
        fields = Fields(config, where, BundleError, _ADVICE)
        for switch in ("do_resize", "do_rescale", "do_normalize"):
            if not fields.flag(switch, default=True):
                raise BundleError(f"{where} sets {switch} to false, which is not supported")
        size = fields.section_or_empty("size")
        # older files name the two limits of the area at the top level, and these win
        min_pixels = _pixels(fields, "min_pixels", size, "shortest_edge")
        max_pixels = _pixels(fields, "max_pixels", size, "longest_edge")
        if min_pixels > max_pixels:
            raise BundleError(
                f"{size.where}: shortest_edge {min_pixels:,} is over longest_edge {max_pixels:,}; "
                f"{_ADVICE}"
            )
        return cls(
            patch_size=fields.whole("patch_size", least=1, most=_MOST_SIDE),
            temporal_patch_size=fields.whole("temporal_patch_size", least=1, most=_MOST_FRAMES),
            merge_size=fields.whole("merge_size", least=1, most=_MOST_MERGED),
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            mean=_channels(fields, "image_mean", -_MOST_SCALE),
            std=_channels(fields, "image_std", _LEAST_SCALE),
            rescale_factor=fields.real("rescale_factor", 1 / 255, least=0, most=_MOST_SCALE),
            resample=fields.whole("resample", _BICUBIC, most=_LAST_FILTER),
        )


def _pixels(fields: Fields, name: str, size: Fields, below: str) -> int:
    if fields.has(name):
        return fields.whole(name, least=1, most=_MOST_PIXELS)
    return size.whole(below, least=1, most=_MOST_PIXELS)


def _channels(fields: Fields, name: str, least: float) -> tuple[float, float, float]:
    red, green, blue = fields.reals(name, 3, least=least, most=_MOST_SCALE)
    return red, green, blue
