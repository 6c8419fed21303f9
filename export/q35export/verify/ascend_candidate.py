"""A bundle for the 310P run by the reference executor, answering what `Reference` answers.

No NPU and no engine: the graphs themselves are compared.
"""

from __future__ import annotations

import numpy as np

from q35chat.bundle.bundle import Bundle
from q35chat.vision.positions import mrope_positions
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.reference.chat import GraphChat, encode_picture
from q35export.request import COMPONENTS
from q35export.verify.reference import EncodedPrompt, Float32, Int64, Patches, Prefilled


class AscendCandidate:
    """A bundle with its three graphs opened."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        self._facts = bundle.manifest.model
        self._graphs = {
            name: GraphExecutor(bundle.graph_path(name), threads=threads or 0)
            for name in COMPONENTS["ascend-310p"]
        }
        self._chat = GraphChat(self._graphs)

    def vision(self, picture: Patches) -> Float32:
        """Embeddings [M, H] of one picture, padded to its gear."""
        facts = self._facts
        grid, merge = (picture.grid_h, picture.grid_w), facts.spatial_merge_size
        tokens = picture.grid_h * picture.grid_w // merge**2
        rows = encode_picture(
            self._graphs["vision"],
            picture.values,
            grid,
            side=facts.position_grid_side,
            merge=merge,
            gear=self._gear("vision", "image_gears", tokens),
        )
        return rows.astype(np.float32)

    def prefill(self, prompt: EncodedPrompt) -> Prefilled:
        """Read the prompt into an empty chat, in pieces of the largest gear."""
        logits = self._read(prompt)
        states = self._chat.layer_states(self._facts.layer_types)
        return Prefilled(logits, {name: state.astype(np.float32) for name, state in states.items()})

    def follow(self, prompt: EncodedPrompt, tokens: Int64) -> Float32:
        """Logits [N, V] from which each of `tokens` would have been chosen, given those before."""
        rows = [self._read(prompt)]
        rows += [self._chat.step(int(token)) for token in tokens[:-1]]
        return np.stack(rows)

    def close(self) -> None:
        """Free the graphs."""
        self._graphs.clear()

    def _read(self, prompt: EncodedPrompt) -> Float32:
        self._chat = chat = GraphChat(self._graphs)
        is_image = prompt.ids == self._facts.image_token_id
        positions, delta = mrope_positions(is_image, self._grids(prompt))
        rows = [self.vision(picture) for picture in prompt.pictures]
        images = np.concatenate(rows) if rows else np.empty((0, self._facts.hidden_size))
        longest = self._gears("prefill", "gears")[-1]
        stateful = any(info.name == "past_len" for info in self._graphs["prefill"].inputs)
        step = longest if stateful else len(prompt.ids)
        logits = np.empty(0, np.float32)
        for start in range(0, len(prompt.ids), step):
            part = slice(start, start + step)
            ids = prompt.ids[part].tolist()
            given = images[is_image[:start].sum() : is_image[: part.stop].sum()]
            gear = self._gear("prefill", "gears", len(ids))
            logits = chat.prefill(ids, positions[:, part], given if len(given) else None, gear)
        chat.delta = delta
        return logits

    def _grids(self, prompt: EncodedPrompt) -> list[tuple[int, int]]:
        merge = self._facts.spatial_merge_size
        return [(picture.grid_h // merge, picture.grid_w // merge) for picture in prompt.pictures]

    def _gears(self, graph: str, kind: str) -> list[int]:
        return [int(gear) for gear in self._graphs[graph].metadata[f"q35chat.{kind}"].split(",")]

    def _gear(self, graph: str, kind: str, length: int) -> int | None:
        """The next gear; None, for the exact length, past the largest."""
        return next((gear for gear in self._gears(graph, kind) if gear >= length), None)
