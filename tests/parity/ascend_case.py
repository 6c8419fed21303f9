"""One checkpoint as 310P graphs beside transformers, in FP32 and in FP16.

Ways to read a prompt, and how a run of greedy tokens is compared with PyTorch's own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.native_log import NativeLog
from q35export.ascend.graphs import AscendOptions
from q35export.verify.metrics import difference
from q35export.verify.reference import EncodedPrompt, Float32, GreedyTokens, Int64, Reference
from q35export.verify.samples import Sample
from tests.support.ascend import Array, AscendChat, Exported, encode_picture, export_ascend
from tests.support.checkpoints import make_checkpoint
from tests.support.lite import GuessedCosts, LiteGraphs
from tests.support.reference import LiveReference

DEMO = Path(__file__).parents[2] / "assets" / "demo-model"
GEARS = (64, 128, 512, 2048)
CAPACITY = 2048
STEPS = 64
LIMITS = "cosine 0.999, NRMSE 0.02, max abs error 1.0"


@dataclass(frozen=True, slots=True)
class Way:
    """Read in pieces of `chunk` tokens or whole, each padded to `gear`, or to a longer gear where
    that is too short, or at its exact length."""

    name: str
    chunk: int | None = None
    gear: int | None = None

    def width(self, count: int) -> int | None:
        """The length that `count` tokens are padded to; None for their own."""
        if self.gear is None:
            return None
        return next(gear for gear in GEARS if gear >= max(count, self.gear))


WAYS = (
    Way("whole and exact"),
    Way("whole, padded to 128", gear=128),
    Way("whole, padded to 512", gear=512),
    Way("pieces of 37, exact", chunk=37),
    Way("pieces of 37, padded to 64", chunk=37, gear=64),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """How the engine runs a step: in the prefill, the `one` graph there is, or in decode; up to so
    many tokens in one go."""

    name: str
    one: bool
    step_tokens: int


MODES = (
    Mode("one graph", one=True, step_tokens=1),
    Mode("several tokens", one=False, step_tokens=4),
    Mode("several tokens in one graph", one=True, step_tokens=4),
)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A prompt with its mRoPE positions [3, T] and the rows of its pictures; None without."""

    prompt: EncodedPrompt
    positions: Int64
    rows: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """PyTorch's greedy answer in FP16. `noise` is how far apart two of its logits may be moved by
    FP16 alone: twice the largest change that FP32 makes to any of them over the same tokens."""

    greedy: GreedyTokens
    noise: float


class Case:
    """The checkpoint of a shape; "demo" is the model that comes along. With `w8a8` its graphs
    multiply in int8."""

    def __init__(self, folder: Path, shape: str, *, w8a8: bool = False) -> None:
        self._folder, self._w8a8 = folder, w8a8
        self._checkpoint = DEMO
        if shape != "demo":
            self._checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=11)
        self.reference = LiveReference(self._checkpoint, threads=1)  # two wait for one another
        self._exported: dict[str, Exported] = {}
        self._questions: dict[str, Question] = {}
        self._wanted: dict[tuple[bytes, int], Wanted] = {}

    @cached_property
    def half(self) -> Reference:
        """transformers' model in FP16, as the graphs are."""
        half = copy.copy(self.reference)
        half.model = copy.deepcopy(self.reference.model).half()
        return half

    def exported(self, capacity: int = CAPACITY, mode: Mode | None = None) -> Exported:
        """The graphs of a capacity, made once; those of pictures at the usual one only, and in no
        `mode`."""
        name = f"{capacity} {mode.name if mode else ''}"
        if name not in self._exported:
            gears = tuple(gear for gear in GEARS if gear <= capacity) or (capacity,)
            one = (1,) if mode and mode.one else ()
            options = AscendOptions(
                capacity=capacity,
                gears=(*one, *gears),
                image_gears=(16, 64),
                step_tokens=mode.step_tokens if mode else 1,
                w8a8=self._w8a8,
            )
            pictures = capacity == CAPACITY and mode is None
            components = ("prefill", "decode", *(["vision"] if pictures else []))
            out = self._folder / name
            self._exported[name] = export_ascend(self._checkpoint, out, options, components)
        return self._exported[name]

    def decoder(self, mode: Mode, log: NativeLog, capacity: int = CAPACITY) -> GearedDecoder:
        """The engine over the graphs of a mode, run by the stand-in."""
        exported = self.exported(capacity, mode)
        folder = exported.graphs["prefill"].path.parent.parent
        made = LiteGraphs(folder, folder / "converted", log=log)
        text, image = exported.config.text, exported.config.image_token_id
        if not mode.one:
            return made.decoder(image)
        prefill, costs = made.session("prefill"), GuessedCosts()
        return GearedDecoder(
            None, prefill, image_token_id=image, costs=costs, vocab_size=text.vocab_size
        )

    def question(self, sample: Sample) -> Question:
        """A sample as both sides read it."""
        if sample.name not in self._questions:
            prompt = self.reference.encode(sample)
            rows = [
                encode_picture(
                    self.exported(), picture.values, (picture.grid_h, picture.grid_w), 64
                )
                for picture in prompt.pictures
            ]
            self._questions[sample.name] = Question(
                prompt, self.reference.positions(prompt), np.concatenate(rows) if rows else None
            )
        return self._questions[sample.name]

    def random_text(self, count: int) -> Question:
        """`count` tokens without a special one."""
        config = self.exported().config
        ids = np.random.default_rng(count).integers(0, config.text.vocab_size - 20, count)
        prompt = EncodedPrompt(ids.astype(np.int64))
        return Question(prompt, self.reference.positions(prompt), None)

    def read(
        self, question: Question, way: Way = WAYS[1], capacity: int = CAPACITY
    ) -> tuple[AscendChat, Array]:
        """The chat after the prompt, and the logits of its last token."""
        exported = self.exported(capacity)
        chat, ids = AscendChat(exported), question.prompt.ids
        is_image = ids == exported.config.image_token_id
        step, logits = way.chunk or len(ids), np.empty(0)
        for start in range(0, len(ids), step):
            part = slice(start, start + step)
            first, last = (int(is_image[:place].sum()) for place in (start, part.stop))
            given = None if question.rows is None or first == last else question.rows[first:last]
            piece = ids[part].tolist()
            width = way.width(len(piece))
            logits = chat.prefill(piece, question.positions[:, part], given, width)
        chat.delta = int(question.positions.max()) + 1 - len(ids)
        return chat, logits

    def wanted(self, question: Question, count: int) -> Wanted:
        """What PyTorch in FP16 answers, and its noise; computed once a question."""
        key = question.prompt.ids.tobytes(), count
        if key not in self._wanted:
            greedy = self.half.greedy(question.prompt, count)
            moved = np.abs(self._in_fp32(question.prompt, greedy.tokens) - greedy.logits).max()
            self._wanted[key] = Wanted(greedy, 2 * float(moved))
        return self._wanted[key]

    def _in_fp32(self, prompt: EncodedPrompt, tokens: Int64) -> Float32:
        """Logits [N, V] of FP32 from which each of `tokens` would have been chosen."""
        import torch  # noqa: PLC0415

        whole = EncodedPrompt(np.concatenate([prompt.ids, tokens[:-1]]), prompt.pictures)
        inputs = self.reference._inputs(whole)
        with torch.inference_mode():
            output = self.reference.model(**inputs, use_cache=False, logits_to_keep=len(tokens))
        return np.asarray(output.logits[0].numpy(), np.float32)


def assert_close(found: Array, wanted: Array, what: str) -> None:
    """Within the contract's limits for FP16."""
    apart = difference(found, wanted)
    held = apart.cosine >= 0.999 and apart.nrmse <= 0.02 and apart.max_abs <= 1.0
    assert held, f"{what}: {apart}, allowed {LIMITS}"


class Steps(Protocol):
    """What goes on by one token."""

    def step(self, token: int) -> Array:
        """The logits [V] after `token`."""


def follow(chat: Steps, logits: Array, wanted: Wanted) -> int:
    """Go on greedily beside PyTorch; the number of steps at which it was undecided.

    At every step the logits must be within the limits, and the choice must be PyTorch's wherever
    its first choice leads by more than the noise; else it must be one that it puts no lower than
    that. Then the run goes on with PyTorch's token, so that it is free up to the first such step.
    """
    undecided = 0
    greedy = wanted.greedy
    for number, (token, row) in enumerate(zip(greedy.tokens, greedy.logits, strict=True)):
        assert_close(logits, row, f"logits of token {number}")
        chosen = int(logits.argmax())
        behind = float(row[token] - row[chosen])
        assert behind <= wanted.noise, (
            f"token {number}: {chosen} instead of {token}, {behind} behind, noise {wanted.noise}"
        )
        undecided += chosen != token
        if number + 1 < len(greedy.tokens):
            logits = chat.step(int(token))
    return undecided
