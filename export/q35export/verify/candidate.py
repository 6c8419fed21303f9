"""A bundle run, answering what `Reference` answers: one for the CPU by the engine, one for the 310P
graph by graph by the reference executor, with no NPU and no engine.

Composes bundle, runtime and engine as `cli` does; knows nothing of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import onnx_ir as ir

from q35chat.bundle.bundle import Bundle
from q35chat.engine.contract import shared_names
from q35chat.engine.decoder import extend
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.one_graph import DEFAULT_CHUNK, OneGraphDecoder
from q35chat.engine.session import Buffer
from q35chat.errors import BundleError
from q35chat.runtimes.onnxruntime import OrtRun, OrtSession
from q35chat.vision.geometry import graph_inputs
from q35chat.vision.positions import mrope_positions
from q35export.ascend.reference import GraphExecutor
from q35export.ascend.reference.chat import GraphChat, encode_picture
from q35export.request import COMPONENTS
from q35export.verify.reference import EncodedPrompt, Float32, Int64, Patches, Prefilled

_FP32_ACTIVATIONS = 1  # the accuracy_level of both: multiply in FP32
_QUANTISED = {"MatMulNBits", "QMoE"}
_EIGHT = 8
_GRAPHS = ("text", "vision")
_NAME = ".verify.onnx"


class Candidate:
    """A bundle with its graphs loaded."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        self._facts = facts = bundle.manifest.model
        self._vision: OrtSession | None = None
        if facts.image_token_id is not None:
            self._vision = OrtSession(bundle.graph_path("vision"), threads=threads)
            self._encoder = VisionEncoder(self._vision, facts.spatial_merge_size)
        self._text = WatchedSession(bundle.graph_path("text"), threads=threads)
        self._decoder = self.new_decoder()

    def new_decoder(self, chunk: int = DEFAULT_CHUNK) -> OneGraphDecoder:
        """Another sequence over the same graph, read in chunks of at most `chunk` tokens."""
        return OneGraphDecoder(self._text, image_token_id=self._facts.image_token_id, chunk=chunk)

    def positions(self, prompt: EncodedPrompt) -> Int64:
        """mRoPE positions [3, T]."""
        merge = self._facts.spatial_merge_size
        grids = [(picture.grid_h // merge, picture.grid_w // merge) for picture in prompt.pictures]
        return mrope_positions(prompt.ids == self._facts.image_token_id, grids)[0]

    def vision(self, picture: Patches) -> Float32:
        """Embeddings [M, H] of one picture."""
        facts = self._facts
        grid, side = (picture.grid_h, picture.grid_w), facts.position_grid_side
        return self._encoder.encode(
            graph_inputs(picture.values, *grid, side, facts.spatial_merge_size)
        )

    def embeds(self, prompt: EncodedPrompt) -> Float32 | None:
        """Embeddings [M, H] of all its pictures; None without any."""
        rows = [self.vision(picture) for picture in prompt.pictures]
        return np.concatenate(rows) if rows else None

    def prefill(self, prompt: EncodedPrompt) -> Prefilled:
        """Read the prompt into an empty decoder; KV rows beyond it are left out."""
        self._decoder.reset()
        logits = extend(self._decoder, prompt.ids, self.positions(prompt), self.embeds(prompt))
        assert logits is not None
        return Prefilled(logits.copy(), self._states(len(prompt.ids)))

    def follow(self, prompt: EncodedPrompt, tokens: Int64) -> Float32:
        """Logits [N, V] from which each of `tokens` would have been chosen, given those before."""
        first = self.prefill(prompt).logits
        return np.stack([first, *(self._decoder.step(int(t)).copy() for t in tokens[:-1])])

    def close(self) -> None:
        """Free the graphs."""
        if self._vision is not None:
            self._vision.close()
        self._text.close()

    def _states(self, used: int) -> dict[str, Float32]:
        states = dict(self._decoder.snapshot().states)
        for name, buffer in self._text.caches.items():
            states[name] = buffer.host()[..., :used, :].copy()
        return {name.removeprefix("past_"): states[name] for name in states}


class AscendCandidate:
    """A bundle with its graphs opened: three, or two of a model that sees no pictures. Without
    `rounds_inputs` what is left of multiplications in int8 are their weights."""

    def __init__(
        self, bundle: Bundle, *, threads: int | None = None, rounds_inputs: bool = True
    ) -> None:
        self._facts = bundle.manifest.model
        self._graphs = {
            name: GraphExecutor(
                bundle.graph_path(name), threads=threads or 0, rounds_inputs=rounds_inputs
            )
            for name in COMPONENTS["ascend-310p"]
            if name in bundle.manifest.graphs
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


class WatchedSession(OrtSession):
    """A session that remembers the KV caches bound to it, which the engine keeps to itself.

    `caches` are the buffers that the graph works on in place by promise, by input name: those of
    states that it may only overwrite are in a snapshot.
    """

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        super().__init__(path, threads=threads)
        self.caches: dict[str, Buffer] = {}

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> OrtRun:
        """Bind, and note the caches."""
        in_place, _ = shared_names(self.metadata)
        self.caches |= {name: item for name, item in inputs.items() if name in in_place}
        return super().bind(inputs, outputs)


@contextmanager
def exact_copy(bundle: Bundle) -> Iterator[Bundle]:
    """The bundle with graphs that multiply the same weights in FP32 instead of int8, written beside
    its own; they are gone afterwards. Raises BundleError where they cannot be written.

    Rounding activations to int8 turns the last bit of one sum into a whole step of the next, so two
    correct programs drift apart; without it, what is left between them is a mistake in the graph.
    """
    graphs = {
        name: str(PurePosixPath(file).with_name(_NAME))
        for name, file in bundle.manifest.graphs.items()
        if name in _GRAPHS
    }
    exact = Bundle(bundle.path, replace(bundle.manifest, graphs=graphs))
    try:
        for name in graphs:
            _write_exact(bundle.graph_path(name), exact.graph_path(name))
        yield exact
    finally:
        for name in graphs:
            exact.graph_path(name).unlink(missing_ok=True)


def _write_exact(source: Path, target: Path) -> None:
    model = ir.load(source)
    for node in list(model.graph):
        if node.op_type in _QUANTISED:
            node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", _FP32_ACTIVATIONS)
        if node.op_type == "TopK":
            _refine_everywhere(model.graph, node)
        if node.op_type == "QMoE" and node.attributes["expert_weight_bits"].as_int() == _EIGHT:
            _write_in_float(model.graph, node)
    try:
        ir.save(model, target)
    except OSError as error:
        raise BundleError(
            f"cannot write {target} for the comparison: {error.strerror or error}"
        ) from error


def _refine_everywhere(graph: ir.Graph, node: ir.Node) -> None:
    """Make the logits of all groups with fine codes, as the reference makes them."""
    groups = next(
        value.shape[0]
        for name, value in graph.initializers.items()
        if name.endswith(".groups") and value.shape is not None
    )
    name = "every group"
    count = ir.Value(name=name, const_value=ir.Tensor(np.array([groups], np.int64), name=name))
    graph.register_initializer(count)
    node.replace_input_with(1, count)


def _write_in_float(graph: ir.Graph, node: ir.Node) -> None:
    """Make of experts in 8 bits, for which the kernel has no multiplication in FP32, those that it
    has for floats, over the same weights."""
    block = node.attributes["block_size"].as_int()
    values: list[ir.Value] = []
    for codes, scales in ((2, 3), (5, 6)):
        packed, steps = node.inputs[codes], node.inputs[scales]
        assert packed is not None
        assert steps is not None
        assert steps.shape is not None
        name = f"{packed.name}.zero"
        half = np.full(steps.shape.numpy(), 1 << (_EIGHT - 1), np.uint8)
        zero = ir.Value(name=name, const_value=ir.Tensor(half, name=name))
        graph.register_initializer(zero)
        wide = ir.node("DequantizeLinear", [packed, steps, zero], {"axis": -1, "block_size": block})
        graph.insert_before(node, wide)
        values.append(wide.outputs[0])
    for name in ("expert_weight_bits", "block_size", "accuracy_level", "weights_prepacked"):
        node.attributes.pop(name)
    node.op_type = "MoE"
    node.replace_input_with(2, values[0])
    node.replace_input_with(3, None)
    node.replace_input_with(4, values[1])
    node.resize_inputs(5)
