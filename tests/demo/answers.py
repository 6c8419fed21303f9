"""Asks an exported demo bundle the held-out questions, through the engine that users run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from q35chat.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, Turn
from q35chat.runtimes import open_session
from tools.demo_model.held_out import Question

GREEDY = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=200)


class Asked:
    """A bundle that answers greedily; pictures pass through files in `folder`."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        self.bundle = bundle
        self._folder = folder
        self._engine = ChatEngine.open(
            Bundle.open(bundle), lambda path: open_session(path, "cpu", threads=1)
        )

    def answer(self, question: Question, settings: ChatSettings = GREEDY) -> Finished:
        """The end of the turn that answers the question."""
        events = list(self._engine.run(self._turns(question), settings, lambda: False))
        finished = events[-1]
        assert isinstance(finished, Finished)
        return finished

    def _turns(self, question: Question) -> Sequence[Turn]:
        pictures = iter(question.pictures)
        return [self._turn(message, pictures) for message in question.messages]

    def _turn(self, message: dict[str, Any], pictures: Any) -> Turn:
        content = message["content"]
        if isinstance(content, str):
            return Turn(message["role"], content)
        shown = [next(pictures) for part in content if part["type"] == "image"]
        text = " ".join(part["text"] for part in content if part["type"] == "text")
        return Turn(message["role"], text, tuple(self._attach(picture) for picture in shown))

    def _attach(self, picture: Any) -> Attachment:
        path = self._folder / "picture.png"
        picture.save(path)
        return self._engine.attach(path, GREEDY.max_image_tokens)


def wrong_answers(asked: Asked, questions: Iterable[Question]) -> list[tuple[str, str]]:
    """Pairs of expected and given answer of all questions that were answered wrongly."""
    pairs = ((question, asked.answer(question).text) for question in questions)
    return [(question.expected, text) for question, text in pairs if not question.check(text)]
