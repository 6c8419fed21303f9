"""A bundle run by the engine, answering what `Reference` answers.

Composes bundle, runtime and engine as `cli` does; knows nothing of transformers.
"""

from __future__ import annotations

import numpy as np

from q35chat.bundle import Bundle
from q35chat.engine.decoder import DEFAULT_CHUNK, Decoder
from q35chat.engine.encoder import VisionEncoder
from q35chat.runtimes.onnxruntime import OrtSession
from q35chat.vision.geometry import geometry
from q35chat.vision.positions import mrope_positions
from q35export.verify.reference import Float32, Greedy, Int64, Patches, Prefilled, Prompt
from q35export.verify.watched import WatchedSession


class Candidate:
    """A bundle with its graphs loaded. `chunk` is the most tokens read in one call."""

    def __init__(
        self, bundle: Bundle, *, chunk: int = DEFAULT_CHUNK, threads: int | None = None
    ) -> None:
        self._facts = facts = bundle.manifest.model
        self._vision = OrtSession(bundle.graph_path("vision"), threads=threads)
        self._text = WatchedSession(OrtSession(bundle.graph_path("text"), threads=threads))
        self._encoder = VisionEncoder(self._vision, facts.spatial_merge_size)
        self.decoder = Decoder(self._text, image_token_id=facts.image_token_id, chunk=chunk)

    def positions(self, prompt: Prompt) -> Int64:
        """mRoPE positions [3, T]."""
        merge = self._facts.spatial_merge_size
        grids = [(picture.grid_h // merge, picture.grid_w // merge) for picture in prompt.pictures]
        return mrope_positions(prompt.ids == self._facts.image_token_id, grids)[0]

    def vision(self, picture: Patches) -> Float32:
        """Embeddings [M, H] of one picture."""
        facts = self._facts
        taps = geometry(
            picture.grid_h, picture.grid_w, facts.position_grid_side, facts.spatial_merge_size
        )
        return self._encoder.encode(
            {
                "pixel_values": picture.values,
                "position_index": taps.position_index,
                "position_weight": taps.position_weight,
                "patch_position": taps.patch_position,
            }
        )

    def prefill(self, prompt: Prompt) -> Prefilled:
        """Read the prompt into an empty decoder; KV rows beyond it are left out."""
        self.decoder.reset()
        embeds = [self.vision(picture) for picture in prompt.pictures]
        logits = self.decoder.extend(
            prompt.ids, self.positions(prompt), np.concatenate(embeds) if embeds else None
        )
        assert logits is not None
        return Prefilled(logits.copy(), self._states(len(prompt.ids)))

    def greedy(self, prompt: Prompt, count: int) -> Greedy:
        """Exactly `count` tokens, stop tokens included."""
        logits = self.prefill(prompt).logits
        tokens, rows = [int(logits.argmax())], [logits]
        while len(tokens) < count:
            rows.append(self.decoder.step(tokens[-1]).copy())
            tokens.append(int(rows[-1].argmax()))
        return Greedy(np.array(tokens), np.stack(rows))

    def follow(self, prompt: Prompt, tokens: Int64) -> Float32:
        """Logits [N, V] from which each of `tokens` would have been chosen, given those before."""
        first = self.prefill(prompt).logits
        return np.stack([first, *(self.decoder.step(int(t)).copy() for t in tokens[:-1])])

    def close(self) -> None:
        """Free both graphs."""
        self._vision.close()
        self._text.close()

    def _states(self, used: int) -> dict[str, Float32]:
        states = dict(self.decoder.snapshot().states)
        for name, buffer in self._text.caches.items():
            states[name] = buffer.host()[..., :used, :].copy()
        return {name.removeprefix("past_"): states[name] for name in states}
