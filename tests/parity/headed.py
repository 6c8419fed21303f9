"""A checkpoint with a head for drafts, everywhere it runs: exported, in PyTorch, in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import open_decoder
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.speculation import Odds, Speculator, speculator
from q35chat.runtimes import cpu
from q35chat.user_input import Speculate
from q35export.verify.candidate import Candidate
from q35export.verify.reference import EncodedPrompt, Float32, Int64
from tests.parity.head_reference import HeadReference
from tests.support.exported import export_checkpoint
from tests.support.reference import LiveReference


@dataclass(frozen=True, slots=True)
class Headed:
    """`decoder` has the head; `candidate` prepares prompts and goes without it."""

    reference: LiveReference
    head: HeadReference
    bundle: Bundle
    candidate: Candidate
    decoder: OneGraphDecoder

    @classmethod
    def make(cls, checkpoint: Path, out: Path, capacity: int = 512) -> Headed:
        """Export `checkpoint` in FP32 and load it everywhere."""
        bundle = export_checkpoint(checkpoint, out, max_seq_len=capacity, mtp=True)
        reference = LiveReference(checkpoint, threads=1)
        runtime = cpu(threads=1)
        decoder = open_decoder(bundle, runtime, runtime.open_graph, with_head=True)
        assert isinstance(decoder, OneGraphDecoder)
        head = HeadReference(checkpoint, reference)
        return cls(reference, head, bundle, Candidate(bundle, threads=1), decoder)

    def read(self, prompt: EncodedPrompt) -> OneGraphDecoder:
        """The decoder with the head, after reading `prompt` from the beginning."""
        self.decoder.reset()
        extend(
            self.decoder,
            prompt.ids,
            self.candidate.positions(prompt),
            self.candidate.embeds(prompt),
        )
        return self.decoder

    def read_plain(self, prompt: EncodedPrompt) -> OneGraphDecoder:
        """A decoder without a head, after the same."""
        decoder = self.candidate.new_decoder()
        extend(decoder, prompt.ids, self.candidate.positions(prompt), self.candidate.embeds(prompt))
        return decoder


def write(
    decoder: OneGraphDecoder, count: int, mode: Speculate = "mtp"
) -> tuple[tuple[int, ...], Speculator]:
    """`count` greedy tokens, the last of them not read."""
    steps = speculator(decoder, Odds(), (), mode)
    tokens = [int(decoder.logits().argmax())]
    while len(tokens) < count:
        tokens.append(int(steps.step(tokens[-1]).argmax()))
    return tuple(tokens), steps


class RawHead:
    """The head's graph in ONNX Runtime without the engine, its logits as one more output."""

    def __init__(self, bundle: Bundle) -> None:
        path = bundle.graph_path("mtp")
        model = ir.load(path)
        choice = next(node for node in model.graph if node.op_type == "ArgMax")
        logits = choice.inputs[0]
        assert logits is not None
        logits.name, logits.type = "logits", ir.TensorType(ir.DataType.FLOAT)
        model.graph.outputs.append(logits)
        shown = path.with_name("mtp.logits.onnx")
        ir.save(model, shown)
        self._session = ort.InferenceSession(str(shown))
        shown.unlink()
        inputs = {value.name: value.shape for value in self._session.get_inputs()}
        self._capacity = inputs["attention_mask"][1]
        self._caches = {
            name: np.zeros(inputs[name], np.float32) for name in ("past_key_0", "past_value_0")
        }
        self.filled = 0

    def run(
        self, ids: Int64, hidden: Float32, positions: Int64, rows: Float32
    ) -> tuple[int, Float32, Float32]:
        """Read pairs; draft, hidden state [H] and logits [V] of the last."""
        self.filled += len(ids)
        mask = np.zeros((1, self._capacity), np.int32)
        mask[0, : self.filled] = 1
        feeds = {
            "input_ids": ids[None], "hidden": hidden[None], "attention_mask": mask,
            "position_ids": positions[:, None], "image_embeds": rows, **self._caches,
        }  # fmt: skip
        names = [value.name for value in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(None, feeds), strict=True))
        self._caches = {name: outputs[name.replace("past_", "present_")] for name in self._caches}
        return int(outputs["draft"][0, 0]), outputs["next_hidden"][0, 0], outputs["logits"][0, 0]
