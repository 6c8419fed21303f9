"""A whole chat engine on numpy graphs, over a folder with the test tokenizer's files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import Image

from q35chat.bundle.bundle import Bundle, FileEntry, Manifest, ModelFacts, Source
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished, Token
from q35chat.chat.prompt.kept import Pool
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, Turn
from q35chat.engine.one_graph import OneGraphRuntime
from q35chat.engine.session import GraphSession
from q35chat.user_input import Speculate
from tests.doubles.numpy_head import NumpyHead
from tests.doubles.numpy_session import NumpySession
from tests.doubles.vision_session import VisionSession
from tests.support.shapes import SHAPES

SHAPE = SHAPES["plain"]
GREEDY = ChatSettings(sampling=SamplingSettings(temperature=0.0))
END = SHAPE.special_id("<|im_end|>")
THINK, UNTHINK = SHAPE.special_id("<think>"), SHAPE.special_id("</think>")
PICTURE = SHAPE.special_id("<|image_pad|>")


def never() -> bool:
    """A turn that nobody stops."""
    return False


@dataclass(slots=True)
class ChatModel:
    """An engine with its graphs in reach. `processor` is the folder with the tokenizer's files."""

    processor: Path
    capacity: int = 512
    snapshot_bytes: int = 1 << 30
    with_vision: bool = True
    sees: bool = True
    can_try: bool = False
    precision: str = "fp32"
    speculate: Speculate = "auto"
    with_head: bool = False
    states: Pool | None = None
    digest: str = "0" * 64
    experts: int = 0
    opened: list[str] = field(default_factory=list, init=False)
    head: NumpyHead = field(init=False)
    text: NumpySession = field(init=False)
    vision: VisionSession = field(init=False)
    engine: ChatEngine = field(init=False)

    def __post_init__(self) -> None:
        self.text = NumpySession(
            capacity=self.capacity,
            vocab=SHAPE.vocab,
            image_token=PICTURE,
            counts=self.can_try,
            tells=self.with_head,
        )
        self.head = NumpyHead(self.capacity, SHAPE.vocab, image_token=PICTURE)
        self.vision = VisionSession()
        self.engine = ChatEngine.open(
            bundle(
                self.processor,
                self.capacity,
                self.precision,
                with_vision=self.with_vision,
                sees=self.sees,
                with_head=self.with_head,
                digest=self.digest,
                experts=self.experts,
            ),
            OneGraphRuntime(self._open),
            snapshot_bytes=self.snapshot_bytes,
            speculate=self.speculate,
            states=self.states,
        )

    def _open(self, path: Path) -> GraphSession:
        self.opened.append(path.name)
        if path.name == "mtp.onnx":
            return self.head
        return self.vision if path.parent.name == "vision" else self.text

    def ids(self, text: str) -> list[int]:
        """The ids of an answer."""
        return self.engine.tokenizer.encode(text)

    def say(self, turns: Sequence[Turn], *answer: int, settings: ChatSettings = GREEDY) -> None:
        """Make the model answer `turns` with these ids."""
        first = self.engine.plan(turns, settings).prompt_tokens - 1
        self.text.says = {first + place: token for place, token in enumerate(answer)}
        self.head.says = {first + place: token for place, token in enumerate(answer[1:])}

    def run(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings = GREEDY,
        should_stop: Callable[[], bool] = never,
    ) -> list[Event]:
        """All events of a turn."""
        return list(self.engine.run(turns, settings, should_stop))

    def finish(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings = GREEDY,
        should_stop: Callable[[], bool] = never,
    ) -> Finished:
        """How a turn ends."""
        last = self.run(turns, settings, should_stop)[-1]
        assert isinstance(last, Finished)
        return last


def bundle(
    processor: Path,
    capacity: int = 512,
    precision: str = "fp32",
    *,
    with_vision: bool = True,
    sees: bool = True,
    with_head: bool = False,
    digest: str = "",
    experts: int = 0,
) -> Bundle:
    """A bundle of which only the processor's folder is really there, its graphs of a `digest`."""
    assert processor.name == "processor"
    vocabulary = hashlib.sha256((processor / "tokenizer.json").read_bytes()).hexdigest()
    graphs = {"text": "text/model.onnx"}
    if with_vision:
        graphs["vision"] = "vision/model.onnx"
    if with_head:
        graphs["mtp"] = "text/mtp.onnx"
    manifest = Manifest(
        exporter="0",
        created="2026-01-01T00:00:00Z",
        source=Source("tests/numpy", None, ""),
        target="cpu",
        precision=precision,
        capacity=capacity,
        options={},
        model=ModelFacts(
            vocab_size=SHAPE.vocab,
            hidden_size=6,
            image_token_id=PICTURE if sees else None,
            vision_start_token_id=SHAPE.special_id("<|vision_start|>"),
            vision_end_token_id=SHAPE.special_id("<|vision_end|>"),
            patch_size=SHAPE.patch,
            temporal_patch_size=SHAPE.temporal_patch,
            spatial_merge_size=SHAPE.merge,
            position_grid_side=SHAPE.grid_side,
            layer_types=("linear_attention", "full_attention"),
            num_hidden_layers=2,
            experts=experts,
        ),
        graphs=graphs,
        files={"processor/tokenizer.json": FileEntry(0, vocabulary)}
        | {name: FileEntry(0, digest) for name in graphs.values() if digest},
    )
    return Bundle(processor.parent, manifest)


def picture(width: int, height: int, color: str = "red") -> Attachment:
    """A PNG of one colour."""
    stream = BytesIO()
    Image.new("RGB", (width, height), color).save(stream, "PNG")
    data = stream.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return Attachment(digest, f"{color}.png", data, width, height, tokens=0)


def tokens(events: Sequence[Event]) -> Iterator[Token]:
    """The tokens among events."""
    return (event for event in events if isinstance(event, Token))


def user(text: str, *pictures: Attachment) -> Turn:
    """A question."""
    return Turn("user", text, pictures)


def answered(finished: Finished) -> Turn:
    """The turn that an answer becomes."""
    return Turn.answer(finished)
