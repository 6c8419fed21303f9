"""A bundle run by the engine, answering what `Reference` answers.

Composes bundle, runtime and engine as `cli` does; knows nothing of transformers.
"""

from __future__ import annotations

import numpy as np

from q35chat.bundle.bundle import Bundle
from q35chat.engine.decoder import DEFAULT_CHUNK, Decoder
from q35chat.engine.encoder import VisionEncoder
from q35chat.runtimes.onnxruntime import OrtSession
from q35chat.vision.geometry import geometry
from q35chat.vision.positions import mrope_positions
from q35export.verify.reference import Float32, Greedy, Int64, Patches, Prefilled, Prompt
from q35export.verify.watched import WatchedSession


class Candidate:
    """A bundle with its graphs loaded."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        self._facts = facts = bundle.manifest.model
        self._vision = OrtSession(bundle.graph_path("vision"), threads=threads)
        self._text = WatchedSession(OrtSession(bundle.graph_path("text"), threads=threads))
        self._encoder = VisionEncoder(self._vision, facts.spatial_merge_size)
        self._decoder = self.new_decoder()

    def new_decoder(self, chunk: int = DEFAULT_CHUNK) -> Decoder:
        """Another sequence over the same graph, read in chunks of at most `chunk` tokens."""
        return Decoder(self._text, image_token_id=self._facts.image_token_id, chunk=chunk)

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

    def embeds(self, prompt: Prompt) -> Float32 | None:
        """Embeddings [M, H] of all its pictures; None without any."""
        rows = [self.vision(picture) for picture in prompt.pictures]
        return np.concatenate(rows) if rows else None

    def prefill(self, prompt: Prompt) -> Prefilled:
        """Read the prompt into an empty decoder; KV rows beyond it are left out."""
        self._decoder.reset()
        logits = self._decoder.extend(prompt.ids, self.positions(prompt), self.embeds(prompt))
        assert logits is not None
        return Prefilled(logits.copy(), self._states(len(prompt.ids)))

    def greedy(self, prompt: Prompt, count: int) -> Greedy:
        """Exactly `count` tokens, stop tokens included."""
        logits = self.prefill(prompt).logits
        tokens, rows = [int(logits.argmax())], [logits]
        while len(tokens) < count:
            rows.append(self._decoder.step(tokens[-1]).copy())
            tokens.append(int(rows[-1].argmax()))
        return Greedy(np.array(tokens), np.stack(rows))

    def follow(self, prompt: Prompt, tokens: Int64) -> Float32:
        """Logits [N, V] from which each of `tokens` would have been chosen, given those before."""
        first = self.prefill(prompt).logits
        return np.stack([first, *(self._decoder.step(int(t)).copy() for t in tokens[:-1])])

    def close(self) -> None:
        """Free both graphs."""
        self._vision.close()
        self._text.close()

    def _states(self, used: int) -> dict[str, Float32]:
        states = dict(self._decoder.snapshot().states)
        for name, buffer in self._text.caches.items():
            states[name] = buffer.host()[..., :used, :].copy()
        return {name.removeprefix("past_"): states[name] for name in states}
