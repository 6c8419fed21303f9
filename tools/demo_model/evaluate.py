"""Measures a folder: greedy answers to held-out questions by bundles that `q35chat export` makes.

Answers come through the engine that users run, so the tests measure the same way. No torch here.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from PIL import Image

from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, Turn
from q35chat.runtimes import cpu
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, Precision

from .held_out import (
    SEED,
    Question,
    held_out_conversations,
    held_out_memory_questions,
    held_out_picture_questions,
)
from .report import Results

PRECISIONS: Final[tuple[Precision, ...]] = ("fp32", "int8", "int4")
GREEDY: Final = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=200)


class Asked:
    """A bundle that answers greedily; pictures pass through files in `folder`."""

    def __init__(self, bundle: Path, folder: Path, threads: int = 1) -> None:
        self.bundle = bundle
        self._folder = folder
        self._engine = ChatEngine.open(Bundle.open(bundle), cpu(threads=threads))

    def answer(self, question: Question, settings: ChatSettings = GREEDY) -> Finished:
        """The end of the turn that answers the question."""
        *_, finished = self._engine.run(self._turns(question), settings, lambda: False)
        if not isinstance(finished, Finished):
            raise TypeError(f"The turn ended with {finished}.")
        return finished

    def wrong(
        self, questions: Sequence[Question], settings: ChatSettings = GREEDY
    ) -> list[tuple[str, str]]:
        """Pairs of expected and given answer of the questions that are answered wrongly."""
        asked = ((question, self.answer(question, settings).text) for question in questions)
        return [(question.expected, said) for question, said in asked if not question.check(said)]

    def _turns(self, question: Question) -> Sequence[Turn]:
        pictures = iter(question.pictures)
        return [self._turn(message, pictures) for message in question.messages]

    def _turn(self, message: dict[str, Any], pictures: Iterator[Image.Image]) -> Turn:
        content = message["content"]
        if isinstance(content, str):
            return Turn(message["role"], content)
        shown = [next(pictures) for part in content if part["type"] == "image"]
        text = " ".join(part["text"] for part in content if part["type"] == "text")
        return Turn(message["role"], text, tuple(self._attach(picture) for picture in shown))

    def _attach(self, picture: Image.Image) -> Attachment:
        path = self._folder / "picture.png"
        picture.save(path)
        return self._engine.attach(path, GREEDY.max_image_tokens)


def exported(model: Path, precision: Precision, folder: Path, threads: int = 1) -> Asked:
    """The checkpoint as a CPU bundle in `folder`, opened."""
    out = folder / "bundle"
    request = ExportRequest(model=str(model), out=out, target="cpu", precision=precision)
    export(request, PlainReporter(io.StringIO()))
    return Asked(out, folder, threads)


def measured(model: Path, threads: int = 2) -> Results:
    """Right answers by set and by precision, with a line for each."""
    sets = {
        "pictures": (held_out_picture_questions(500), GREEDY),
        "memory": (held_out_memory_questions(200), GREEDY),
        "mixed": (held_out_conversations(100), GREEDY),
        "thinking": (held_out_picture_questions(100, SEED + 1), GREEDY.with_thinking(True)),
    }
    results: Results = {name: {} for name in sets}
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            asked = exported(model, precision, Path(folder), threads)
            for name, (questions, settings) in sets.items():
                started = time.monotonic()
                right = len(questions) - len(asked.wrong(questions, settings))
                results[name][precision] = {"right": right, "asked": len(questions)}
                print(
                    f"{precision} {name:9s} {right} of {len(questions)} right "
                    f"({time.monotonic() - started:.0f} s)",
                    flush=True,
                )
    return results
