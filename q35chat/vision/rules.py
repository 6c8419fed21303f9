"""How the checkpoint wants its pictures: `preprocessor_config.json` as a value.

Knows the file's fields; touches no picture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from q35chat.errors import BundleError

DEFAULT_MAX_IMAGE_TOKENS = 1024
"""A 12-megapixel photo is about 11,800 tokens under the checkpoint's own limit alone."""

_BICUBIC = 3
_RESAMPLING_FILTERS = range(6)


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

    @classmethod
    def read(cls, path: Path) -> PictureRules:
        """The rules in the JSON file at `path`. Raises BundleError."""
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BundleError(f"cannot read the picture rules in {path}: {error}") from error
        if not isinstance(config, dict):
            raise BundleError(f"{path} holds no JSON object; export the model again")
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PictureRules:
        """The rules in a decoded `preprocessor_config.json`. Raises BundleError."""
        try:
            rules = _parse(config)
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"preprocessor_config.json lacks or misstates {error}; export the model again"
            ) from error
        for switch in ("do_resize", "do_rescale", "do_normalize"):
            if config.get(switch) is False:
                raise BundleError(
                    f"preprocessor_config.json sets {switch} to false, which is not supported"
                )
        return rules


def _parse(config: Mapping[str, Any]) -> PictureRules:
    size = config.get("size") or {}
    # older files name the two limits of the area at the top level, and these win
    min_pixels = _limit(config.get("min_pixels"), size, "shortest_edge")
    max_pixels = _limit(config.get("max_pixels"), size, "longest_edge")
    if min_pixels > max_pixels:
        raise ValueError(f"size (shortest_edge {min_pixels} over longest_edge {max_pixels})")
    return PictureRules(
        patch_size=_positive(config, "patch_size"),
        temporal_patch_size=_positive(config, "temporal_patch_size"),
        merge_size=_positive(config, "merge_size"),
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        mean=_channels(config, "image_mean"),
        std=_channels(config, "image_std", nonzero=True),
        rescale_factor=float(config.get("rescale_factor", 1 / 255)),
        resample=_resample(config.get("resample", _BICUBIC)),
    )


def _limit(top: object, size: Mapping[str, Any], key: str) -> int:
    return _positive({key: top if top is not None else size[key]}, key)


def _positive(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} ({value!r})")
    return value


def _channels(
    config: Mapping[str, Any], key: str, *, nonzero: bool = False
) -> tuple[float, float, float]:
    values = tuple(float(value) for value in config[key])
    if len(values) != 3 or (nonzero and 0 in values):
        raise ValueError(f"{key} ({config[key]!r})")
    return values


def _resample(value: object) -> int:
    if not isinstance(value, int) or value not in _RESAMPLING_FILTERS:
        raise ValueError(f"resample ({value!r})")
    return value
