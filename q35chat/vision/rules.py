"""How the checkpoint wants its pictures: the fields of its image processor as a value.

Knows the files and their fields; touches no picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from q35chat.errors import BundleError, Remedy
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
_FILE: Final = "preprocessor_config.json"
_NESTED: Final = "processor_config.json"
# Of the image processor that transformers has for this model, where a file leaves something out.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "rescale_factor": 1 / 255,
    "resample": _BICUBIC,
}
_wrong: Final = partial(BundleError, remedy=Remedy.EXPORT_AGAIN)


@dataclass(frozen=True, slots=True)
class PictureRules:
    """Sizes in pixels. `merge_size` patches a side form one token.

    `square` is the side of the black square that every picture is put into; None keeps its shape.
    `where` names the file.
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
    where: str = field(default=_FILE, compare=False)

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
                raise _wrong(f"{self.where}: {name} is {found:,}, the model has {wanted:,}")

    @classmethod
    def read(cls, folder: Path) -> PictureRules:
        """The rules in the files of `folder`. Raises BundleError."""
        return cls.from_config(*picture_sections(folder)[0])

    @classmethod
    def from_config(cls, config: object, where: str = _FILE) -> PictureRules:
        """The rules in a decoded `preprocessor_config.json`; `where` names the file in messages.

        Raises BundleError.
        """
        if isinstance(config, dict):
            config = {**_DEFAULTS, **config}
        fields = Fields(config, where, _wrong)
        for switch in ("do_resize", "do_rescale", "do_normalize"):
            if not fields.flag(switch, default=True):
                raise _wrong(f"{where} sets {switch} to false, which is not supported")
        size = fields.section("size")
        # older files name the two limits of the area at the top level, and these win
        min_pixels = _pixels(fields, "min_pixels", size, "shortest_edge")
        max_pixels = _pixels(fields, "max_pixels", size, "longest_edge")
        if min_pixels > max_pixels:
            raise _wrong(
                f"{size.where}: shortest_edge {min_pixels:,} is over longest_edge {max_pixels:,}"
            )
        return cls(
            patch_size=fields.whole("patch_size", least=1, most=_MOST_SIDE),
            temporal_patch_size=fields.whole("temporal_patch_size", least=1, most=_MOST_FRAMES),
            merge_size=fields.whole("merge_size", least=1, most=_MOST_MERGED),
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            mean=_channels(fields, "image_mean", -_MOST_SCALE),
            std=_channels(fields, "image_std", _LEAST_SCALE),
            rescale_factor=fields.real("rescale_factor", least=0, most=_MOST_SCALE),
            resample=fields.whole("resample", most=_LAST_FILTER),
            where=where,
        )


def picture_sections(folder: Path) -> list[tuple[object, str]]:
    """What says how pictures are cut, with where it stands, the one that counts first: what newer
    versions of transformers nest in the processor's file wins, as there. Raises BundleError."""
    found: list[tuple[object, str]] = []
    for name in (_NESTED, _FILE):
        path = folder / name
        if not path.is_file():
            continue
        try:
            config = read_json(path)
        except ValueError as error:
            raise _wrong(f"cannot read the picture rules in {path}: {error}") from error
        if name == _FILE:
            found.append((config, str(path)))
        elif (nested := Fields(config, str(path), _wrong)).has("image_processor"):
            found.append((nested.raw("image_processor"), f"{path}: image_processor"))
    if not found:
        nested_file = f", and {_NESTED} no image_processor" if (folder / _NESTED).is_file() else ""
        raise _wrong(f"{folder} has no {_FILE}{nested_file}: nothing says how pictures are cut")
    return found


def _pixels(fields: Fields, name: str, size: Fields, below: str) -> int:
    if fields.has(name):
        return fields.whole(name, least=1, most=_MOST_PIXELS)
    return size.whole(below, least=1, most=_MOST_PIXELS)


def _channels(fields: Fields, name: str, least: float) -> tuple[float, float, float]:
    red, green, blue = fields.reals(name, 3, least=least, most=_MOST_SCALE)
    return red, green, blue
