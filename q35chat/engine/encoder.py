"""Pictures to rows of embeddings, one picture per run of the vision graph.

Knows names and shapes of the graph; geometry and patches are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from q35chat.engine.session import Array, GraphSession
from q35chat.errors import BundleError

PIXELS, ROWS = "pixel_values", "image_embeds"


class NoGeometryError(BundleError):
    """A vision graph that cannot be told where patches lie, so that only its maker can feed it."""


class VisionEncoder:
    """A vision graph that takes any number of patches.

    `width` is used where the graph does not tell its own. Raises BundleError for another graph.
    `max_rows` are the most rows that a picture may take, `square_side` the patches along a side of
    the only picture that is taken; None where any is.
    """

    max_rows: int | None = None
    square_side: int | None = None

    def __init__(self, session: GraphSession, merge_size: int, width: int | None = None) -> None:
        self._session = session
        self._merged = merge_size**2
        self._inputs = {spec.name: spec for spec in session.inputs}
        outputs = {spec.name: spec for spec in session.outputs}
        if PIXELS not in self._inputs or ROWS not in outputs:
            raise BundleError(
                "vision graph must turn pixel_values into image_embeds: export the bundle again"
            )
        self._output = outputs[ROWS]
        self._width = self._output.shape[-1] if self._output.shape else width

    @property
    def width(self) -> int:
        """The length H of a row."""
        if self._width is None:
            raise BundleError("image_embeds must have a fixed width: export the bundle again")
        return self._width

    def encode(self, arrays: Mapping[str, Array]) -> Array:
        """Run once over `arrays` [P, ...], which name the inputs of the graph;
        [P / merge_size², H] float32, a copy.

        Raises ValueError when an input is missing, PictureError for more patches than are taken.
        """
        if missing := sorted(set(self._inputs) - set(arrays)):
            raise ValueError(f"vision graph also needs {', '.join(missing)}")
        session, inputs = self._session, {}
        for name, spec in self._inputs.items():
            inputs[name] = session.allocate(arrays[name].shape, spec.dtype)
            inputs[name].write(arrays[name].astype(spec.dtype, copy=False))
        rows = len(arrays[PIXELS]) // self._merged
        output = session.allocate((rows, self.width), self._output.dtype)
        session.bind(inputs, {ROWS: output})()
        return output.host().astype("float32", copy=True)

    def close(self) -> None:
        """Free the graph; further calls are errors."""
        self._session.close()
