"""What the tests of the whole chat on the NPU's path share: bundles, questions, how to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35export.ascend.converter import find_converter
from q35export.ascend.mindir import convert
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint
from tests.support.converter import install_converter

ROOT = Path(__file__).parents[2]
DEMO, PICTURES = ROOT / "assets" / "demo-model", ROOT / "assets" / "pictures"
GREEDY = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=24)
HELLO = Turn("user", "Hello, who are you?")

OpenChat = Callable[..., ChatEngine]
Bundles = Callable[..., Path]


def converted_bundle(folder: Path, name: str, **options: object) -> Path:
    """A bundle exported and converted in `folder`; a `name` that begins with "demo" is of the demo
    model, any other of random weights."""
    source = DEMO if name.startswith("demo") else make_checkpoint(folder / "model", seed=5)
    settings = {"max_seq_len": 192, "gears": (16, 64, 128), "image_gears": (16, 64), **options}
    request = ExportRequest(
        str(source),
        folder / "out",
        target="ascend-310p",
        **settings,  # type: ignore[arg-type]
    )
    export(request, PlainReporter(sys.stderr))
    with pytest.MonkeyPatch.context() as patch:
        install_converter(folder / "bin", patch)
        convert(folder / "out", find_converter(), PlainReporter(sys.stderr))
    return folder / "out"


def run(engine: ChatEngine, *turns: Turn, settings: ChatSettings = GREEDY) -> list[Event]:
    return list(engine.run(turns, settings, lambda: False))


def finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def ask(engine: ChatEngine, *turns: Turn) -> Finished:
    return finished(run(engine, *turns))
