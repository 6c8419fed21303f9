"""Pictures padded to the gears of a vision graph, or of the one square that is built into it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from q35chat.engine.encoder import PIXELS, NoGeometryError, VisionEncoder
from q35chat.engine.session import Array, GraphSession
from q35chat.errors import PictureError, Remedy

_MASK = "patch_mask"


class GearedEncoder(VisionEncoder):
    """A vision graph that accepts only certain numbers of patches.

    Such a graph has a `patch_mask` [1, P], which is filled here: ones, then zeros. One that is
    told no geometry has that of one square built in. `width` is used where the graph does not tell
    its own. Raises BundleError for another graph, NoGeometryError for one that only its maker
    could feed.
    """

    def __init__(self, session: GraphSession, merge_size: int, width: int | None = None) -> None:
        super().__init__(session, merge_size, width)
        self._gears = _gears(session)
        if len(self._inputs) == 1:
            self.square_side = self._built_in_side(merge_size)
            self.max_rows = self.square_side**2 // self._merged
        elif self._gears:
            self.max_rows = max(self._gears) // self._merged

    def encode(self, arrays: Mapping[str, Array]) -> Array:
        """Run once over `arrays` [P, ...], padded; [P / merge_size², H] float32, a copy.

        Raises ValueError when an input is missing, PictureError for more patches than the largest
        gear.
        """
        count = patches = len(arrays[PIXELS])
        if self._gears:
            fitting = [gear for gear in self._gears if gear >= count]
            if not fitting:
                raise PictureError(
                    f"the picture takes {count // self._merged} tokens, the vision graph at most "
                    f"{self.max_rows}:",
                    Remedy.SMALLER_PICTURES,
                )
            patches = min(fitting)
        padded = {
            name: _padded(array, patches) for name, array in arrays.items() if name in self._inputs
        }
        padded[_MASK] = (np.arange(patches) < count)[None]
        return super().encode(padded)[: count // self._merged]

    def _built_in_side(self, merge_size: int) -> int:
        """A square is all that a number of patches can tell."""
        patches = self._inputs[PIXELS].shape[0]
        if patches is None:
            raise NoGeometryError(
                "its vision graph takes any number of patches but not where they lie in a picture"
            )
        side = math.isqrt(patches)
        if side**2 != patches or side % merge_size:
            raise NoGeometryError(
                f"its vision graph takes {patches} patches, which are no square of "
                f"{merge_size} x {merge_size} blocks, and does not take where they lie"
            )
        return side


def _gears(session: GraphSession) -> tuple[int, ...]:
    """Numbers of patches that are accepted, from the session's metadata; none: any number."""
    text = session.metadata.get("q35chat.gear_shapes", "")
    entries = [
        dict(part.split("=") for part in gear.split(",")) for gear in text.split(";") if gear
    ]
    return tuple(int(entry[f"{PIXELS}:0"]) for entry in entries if f"{PIXELS}:0" in entry)


def _padded(array: Array, rows: int) -> Array:
    """`array` [P, ...] with zeros behind it, [rows, ...]."""
    if len(array) == rows:
        return array
    whole = np.zeros((rows, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole
