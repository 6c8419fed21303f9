"""A conversation line by line, for a terminal without a screen, and for scripts.

Owns the commands; model, turns and store are behind `StoredConversation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from q35chat.chat.conversation import StoredConversation
from q35chat.chat.values import Attachment
from q35chat.commands.answering import show_turn
from q35chat.commands.console import Console
from q35chat.commands.line_input import script_lines, typed_lines
from q35chat.commands.render import StreamRenderer
from q35chat.counting import counted
from q35chat.errors import PictureError, Q35Error
from q35chat.safe_text import safe_text
from q35chat.typed import typed_path

HELP = """\
/image PATH  add a picture to the next question
/new         start over
/help        show this
/quit        leave, as Ctrl+D does; Ctrl+C stops an answer"""


class LineChat:
    """Talks in `conversation`; `begin` makes a new one for /new."""

    def __init__(
        self,
        conversation: StoredConversation,
        begin: Callable[[], StoredConversation],
        console: Console,
    ) -> None:
        self._conversation = conversation
        self._begin = begin
        self._console = console
        self._pictures: tuple[Attachment, ...] = ()
        self._failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            "/image": self._add_picture,
            "/new": self._start_over,
            "/help": lambda _: self._say(HELP),
        }

    def talk(self, first: str = "") -> int:
        """Ask `first`, if that is any, then what is typed until /quit or Ctrl+D; the exit code."""
        self._say(f"{self._conversation.model.name}. /help shows the commands, /quit leaves.")
        if first:
            self._say(f"> {safe_text(first)}")
        self._take(first, typed_lines(self._say), typed=True)
        return 0

    def follow(self, script: BinaryIO | None, first: str = "") -> int:
        """Ask `first`, if that is any, then every line of `script`; the exit code: 1 where a
        question was not answered or a picture not taken.

        Raises UsageError for a line that is too long or not UTF-8.
        """
        self._take(first, script_lines(script) if script is not None else iter(()), typed=False)
        return 1 if self._failed else 0

    def _take(self, first: str, lines: Iterator[str], *, typed: bool) -> None:
        if first:
            self._answer(first)
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                return
            if word in self._commands:
                self._commands[word](rest.strip())
            elif typed and word.startswith("/") and not Path(word).exists():
                self._say(f"{safe_text(word)} is no command; /help shows them")
            elif line.strip():
                self._answer(line)

    def _answer(self, text: str) -> None:
        renderer = StreamRenderer(self._console)
        chat = self._conversation
        try:
            show_turn(chat.send(text, self._pictures), chat.cancel, renderer)
        except Q35Error as error:
            renderer.close()
            self._fail(error)
            return
        self._pictures = ()

    def attach(self, path: Path) -> None:
        """Add a picture to the next question. Raises PictureError."""
        picture = self._conversation.attach(path)
        self._pictures = (*self._pictures, picture)
        size = f"{picture.width} x {picture.height}"
        self._console.note(f"{picture.name}: {size} pixels, {counted(picture.tokens, 'token')}")

    def _add_picture(self, path: str) -> None:
        name = path.strip("'\"")
        try:
            if not name:
                raise PictureError("which picture? /image PATH")
            self.attach(typed_path(name))
        except PictureError as error:
            self._fail(error)

    def _start_over(self, _: str) -> None:
        self._conversation, self._pictures = self._begin(), ()
        self._say("a new chat")

    def _fail(self, error: Q35Error) -> None:
        self._failed = True
        self._console.note(f"q35chat: {error}")

    def _say(self, text: str) -> None:
        self._console.err.write(text + "\n")
        self._console.err.flush()
