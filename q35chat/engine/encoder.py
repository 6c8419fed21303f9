"""Pictures to rows of embeddings, one picture per run of the vision graph.

Knows names and shapes of the graph; geometry and patches are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from q35chat.engine.session import Array, GraphSession
from q35chat.errors import BundleError


class VisionEncoder:
    """A vision graph that turns the patches of one picture into `image_embeds`."""

    def __init__(self, session: GraphSession, merge_size: int) -> None:
        self._session = session
        self._merged = merge_size**2
        self._inputs = {spec.name: spec for spec in session.inputs}
        outputs = {spec.name: spec for spec in session.outputs}
        if "pixel_values" not in self._inputs or "image_embeds" not in outputs:
            raise BundleError(
                "vision graph must turn pixel_values into image_embeds: export the bundle again"
            )
        self._output = outputs["image_embeds"]

    @property
    def width(self) -> int:
        """The length H of a row."""
        width = self._output.shape[-1]
        if width is None:
            raise BundleError("image_embeds must have a fixed width: export the bundle again")
        return width

    def encode(self, arrays: Mapping[str, Array]) -> Array:
        """Run once over `arrays`, which name every input of the graph; [M, H] float32, a copy.

        M is the number of patches over merge_size². Raises ValueError when an input is
        missing.
        """
        if missing := sorted(set(self._inputs) - set(arrays)):
            raise ValueError(f"vision graph also needs {', '.join(missing)}")
        session = self._session
        inputs = {}
        for name, spec in self._inputs.items():
            inputs[name] = session.allocate(arrays[name].shape, spec.dtype)
            inputs[name].write(arrays[name].astype(spec.dtype, copy=False))
        rows = len(arrays["pixel_values"]) // self._merged
        output = session.allocate((rows, self.width), self._output.dtype)
        session.bind(inputs, {"image_embeds": output})()
        return output.host().astype("float32", copy=True)
