"""Pictures to rows of embeddings, one picture per run of the vision graph.

Knows names and shapes of the graph, and pads to its gears; geometry and patches are made elsewhere.
A graph that is told no geometry has that of one square built in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from q35chat.engine.session import Array, GraphSession
from q35chat.errors import BundleError, PictureError

_PIXELS, _MASK, _ROWS = "pixel_values", "patch_mask", "image_embeds"


class SquareError(BundleError):
    """A vision graph with a built-in geometry that cannot be told."""


class VisionEncoder:
    """A vision graph that turns the patches of one picture into `image_embeds`.

    A graph with gears has a `patch_mask` [1, P], which is filled here: ones, then zeros. `width`
    is used where the graph does not tell its own. `square_side` is the number of patches along a
    side of the only picture that the graph takes, None where it takes any. Raises BundleError for
    another graph, SquareError for one that only its maker could feed.
    """

    def __init__(self, session: GraphSession, merge_size: int, width: int | None = None) -> None:
        self._session = session
        self._merged = merge_size**2
        self._inputs = {spec.name: spec for spec in session.inputs}
        outputs = {spec.name: spec for spec in session.outputs}
        if _PIXELS not in self._inputs or _ROWS not in outputs:
            raise BundleError(
                "vision graph must turn pixel_values into image_embeds: export the bundle again"
            )
        self._output = outputs[_ROWS]
        self._width = self._output.shape[-1] if self._output.shape else width
        self._gears = _gears(session)
        self.square_side = None if len(self._inputs) > 1 else self._built_in_side(merge_size)

    @property
    def width(self) -> int:
        """The length H of a row."""
        if self._width is None:
            raise BundleError("image_embeds must have a fixed width: export the bundle again")
        return self._width

    @property
    def max_rows(self) -> int | None:
        """The most rows that a picture may take; None where any number is accepted."""
        if self.square_side is not None:
            return self.square_side**2 // self._merged
        return max(self._gears) // self._merged if self._gears else None

    def encode(self, arrays: Mapping[str, Array]) -> Array:
        """Run once over `arrays`, which name every input of the graph but the mask; [M, H]
        float32, a copy.

        M is the number of patches over merge_size². Raises ValueError when an input is
        missing, PictureError for more patches than the largest gear.
        """
        if missing := sorted(set(self._inputs) - set(arrays) - {_MASK}):
            raise ValueError(f"vision graph also needs {', '.join(missing)}")
        session, count = self._session, len(arrays[_PIXELS])
        width = self._gear(count)
        inputs = {}
        for name, spec in self._inputs.items():
            if name == _MASK:
                array = (np.arange(width) < count).astype(spec.dtype)[None]
            else:
                array = _padded(arrays[name], width).astype(spec.dtype, copy=False)
            inputs[name] = session.allocate(array.shape, spec.dtype)
            inputs[name].write(array)
        output = session.allocate((width // self._merged, self.width), self._output.dtype)
        session.bind(inputs, {_ROWS: output})()
        return output.host()[: count // self._merged].astype("float32", copy=True)

    def close(self) -> None:
        """Free the graph; further calls are errors."""
        self._session.close()

    def _built_in_side(self, merge_size: int) -> int:
        """A square is all that a number of patches can tell."""
        patches = self._inputs[_PIXELS].shape[0]
        if patches is None:
            raise SquareError(
                "its vision graph takes any number of patches but not where they lie in a picture"
            )
        side = math.isqrt(patches)
        if side**2 != patches or side % merge_size:
            raise SquareError(
                f"its vision graph takes {patches} patches, which are no square of "
                f"{merge_size} x {merge_size} blocks, and does not take where they lie"
            )
        return side

    def _gear(self, patches: int) -> int:
        if not self._gears:
            return patches
        fitting = [gear for gear in self._gears if gear >= patches]
        if not fitting:
            raise PictureError(
                f"the picture takes {patches // self._merged} tokens, the vision graph at most "
                f"{self.max_rows}: lower --max-image-tokens, or export with larger --image-gears"
            )
        return min(fitting)


def _gears(session: GraphSession) -> tuple[int, ...]:
    """Numbers of patches that are accepted, from the session's metadata; none: any number."""
    text = session.metadata.get("q35chat.gear_shapes", "")
    entries = [
        dict(part.split("=") for part in gear.split(",")) for gear in text.split(";") if gear
    ]
    return tuple(int(entry[f"{_PIXELS}:0"]) for entry in entries if f"{_PIXELS}:0" in entry)


def _padded(array: Array, rows: int) -> Array:
    if len(array) == rows:
        return array
    whole = np.zeros((rows, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole
