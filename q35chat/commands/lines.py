"""A conversation line by line, for a terminal without a screen, and for scripts.

Owns the commands; model, turns and store are behind `StoredConversation`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from q35chat.chat.conversation import StoredConversation
from q35chat.chat.values import Attachment
from q35chat.commands.answering import show_turn
from q35chat.commands.console import Console
from q35chat.commands.render import StreamRenderer
from q35chat.counting import counted
from q35chat.errors import PictureError, Q35Error
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
        self._commands: dict[str, Callable[[str], None]] = {
            "/image": self._add_picture,
            "/new": self._start_over,
            "/help": lambda _: self._say(HELP),
        }

    def loop(self, stdin: TextIO) -> int:
        """Talk until /quit or the end of `stdin`; the exit code."""
        typed = stdin.isatty()
        if typed:
            self._say(f"{self._conversation.model.name}. /help shows the commands, /quit leaves.")
        while (line := self._next_line(stdin, typed=typed)) is not None:
            word, _, rest = line.strip().partition(" ")
            if word == "/quit":
                break
            if word in self._commands:
                self._commands[word](rest.strip())
            elif typed and word.startswith("/") and not Path(word).exists():
                self._say(f"{word} is no command; /help shows them")
            elif line.strip():
                self._answer(line)
        return 0

    def _next_line(self, stdin: TextIO, *, typed: bool) -> str | None:
        if not typed:
            line = stdin.readline()
            return line.removesuffix("\n") if line else None
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415  (gives input() editing and history)
        try:
            return input("> ")
        except EOFError:
            self._say("")
            return None
        except KeyboardInterrupt:
            self._say("\n(Ctrl+D leaves)")
            return ""

    def _answer(self, text: str) -> None:
        renderer = StreamRenderer(self._console)
        chat = self._conversation
        try:
            show_turn(chat.send(text, self._pictures), chat.cancel, renderer)
        except Q35Error as error:
            renderer.close()
            self._console.note(f"q35chat: {error}")
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
            self._console.note(f"q35chat: {error}")

    def _start_over(self, _: str) -> None:
        self._conversation, self._pictures = self._begin(), ()
        self._say("a new chat")

    def _say(self, text: str) -> None:
        self._console.err.write(text + "\n")
        self._console.err.flush()
