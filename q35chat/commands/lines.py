"""A conversation line by line, for a terminal without a screen, and for scripts.

Owns the commands; model, turns and store are behind `Conversation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from q35chat.chat.conversation import Conversation
from q35chat.chat.text_files import TextFile, with_files
from q35chat.chat.values import Attachment, Persona
from q35chat.commands.console import Console
from q35chat.commands.prompt_input import MAX_PROMPT_BYTES, checked_argument, checked_text
from q35chat.commands.render import StreamRenderer, show_turn
from q35chat.errors import FileError, PictureError, Q35Error, UsageError
from q35chat.settings.templates import Template, templates, typed_template
from q35chat.text import pluralise, safe_line
from q35chat.tui.chat.paste import is_existing_path
from q35chat.user_input import typed_path, typed_picture

HELP = """\
/image PATH    add a picture to the next question
/file PATH     add the text of a file, also of a PDF
/persona NAME  go on as a persona says; without a name they are listed
/new           start over
/help          show this
/quit          leave, as Ctrl+D does; Ctrl+C stops an answer
A line with a space before its / is a question."""
_ADVICE = "/help shows them, and a space before it makes it a question"
_QUOTED = 60
_LINE_END_BYTES = 2


class LineChat:
    """Talks in `conversation`; `begin` makes a new one for /new, `personas` are those of
    /persona."""

    def __init__(
        self,
        conversation: Conversation,
        begin: Callable[[], Conversation],
        console: Console,
        personas: Callable[[], Sequence[Persona]] = tuple,
    ) -> None:
        self._personas = personas
        self._conversation = conversation
        self._begin = begin
        self._console = console
        self._pictures: tuple[Attachment, ...] = ()
        self._files: tuple[TextFile, ...] = ()
        self._picture_missing = False
        self._failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            "/image": self._add_picture,
            "/file": self._add_file,
            "/persona": self._go_on_as,
            "/new": self._start_over,
            "/help": self._help,
        }

    def talk(self, first: str = "") -> int:
        """Ask `first`, if that is any, then what is typed until /quit or Ctrl+D; the exit code."""
        name = safe_line(self._conversation.model.name)
        self._console.say(f"{name}. /help shows the commands, /quit leaves.")
        if first:
            self._console.say(f"> {first}")
        self._take(first, typed_lines(self._console.say), typed=True)
        return 0

    def follow(self, script: BinaryIO | None, first: str = "") -> int:
        """Ask `first`, if that is any, then every line of `script`; the exit code: 1 where a
        question was not answered, a picture not taken or a command not known. A question whose
        picture was not taken is not asked.

        Raises UsageError for a line that is too long or not UTF-8.
        """
        self._take(first, script_lines(script) if script is not None else iter(()), typed=False)
        return 1 if self._failed else 0

    def _take(self, first: str, lines: Iterator[str], *, typed: bool) -> None:
        ask = self._answer if typed else self._answer_in_script
        if first:
            ask(first)
        for line in lines:
            word, _, rest = line.rstrip().partition(" ")
            name = word.lower()
            if name == "/quit":
                return
            if name in self._commands:
                self._commands[name](rest.strip())
            elif (found := typed_template(line.rstrip())) is not None:
                self._fill(*found, ask)
            elif word.startswith("/") and not is_existing_path(line):
                self._fail(UsageError(f"{word} is no command; {_ADVICE}"))
            elif line.strip():
                ask(line)

    def _answer(self, text: str) -> None:
        renderer = StreamRenderer(self._console, in_lines=not self._console.can_rewrite)
        chat = self._conversation
        try:
            show_turn(
                chat.send(with_files(self._files, text), self._pictures), chat.cancel, renderer
            )
        except Q35Error as error:
            renderer.close()
            self._fail(error)
            return
        self._forget_pictures()

    def _answer_in_script(self, text: str) -> None:
        """Nobody sees that a picture is missing or that a question failed and tries again: a
        question is asked with all its pictures or not at all, and they are of no other one."""
        if self._picture_missing:
            asked = safe_line(text, limit=_QUOTED)
            self._console.note(f"not asked, because a file for it was not taken: {asked}")
        else:
            self._answer(text)
        self._forget_pictures()

    def _forget_pictures(self) -> None:
        self._pictures, self._files, self._picture_missing = (), (), False

    def attach(self, path: Path) -> None:
        """Add a picture to the next question. Raises PictureError."""
        picture = self._conversation.attach(path)
        self._pictures = (*self._pictures, picture)
        size = f"{picture.width} x {picture.height}"
        self._console.note(f"{picture.name}: {size} pixels, {pluralise(picture.tokens, 'token')}")

    def _add_picture(self, path: str) -> None:
        try:
            if not path.strip("'\""):
                raise PictureError("which picture? /image PATH")
            self.attach(typed_picture(path))
        except PictureError as error:
            self._picture_missing = True
            self._fail(error)

    def _add_file(self, path: str) -> None:
        try:
            if not path.strip("'\""):
                raise FileError("which file? /file PATH")
            file = self._conversation.read_file(typed_path(path))
        except Q35Error as error:
            self._picture_missing = True
            self._fail(error)
            return
        self._files = (*self._files, file)
        said = f"{pluralise(file.lines, 'line')}, {pluralise(file.slots, 'slot')}"
        self._console.note(f"{file.name}: {file.part or said}")

    def _fill(self, template: Template, text: str, ask: Callable[[str], None]) -> None:
        try:
            filled = template.filled(text)
        except UsageError as error:
            self._fail(error)
        else:
            ask(filled)

    def _go_on_as(self, name: str) -> None:
        personas = {persona.name: persona for persona in self._personas()}
        if not name:
            for persona in personas.values():
                self._console.say(f"{safe_line(persona.name)}: {persona.words}")
        elif name not in personas:
            known = ", ".join(personas) or "none"
            self._fail(
                UsageError(
                    f"there is no persona {safe_line(name)}; {safe_line(known)} is there, more "
                    "begin with [persona.NAME] in the settings file"
                )
            )
        else:
            persona, before = personas[name], self._conversation.settings()
            try:
                self._conversation.change_settings(persona.over(before))
            except Q35Error as error:
                self._fail(error)
                return
            self._console.say(f"{safe_line(name)}: {persona.words}")

    def _help(self, _: str) -> None:
        self._console.say(HELP)
        for name, template in templates().items():
            if f"/{name}" not in self._commands:
                self._console.say(f"/{name} TEXT  {template.head}".rstrip())

    def _start_over(self, _: str) -> None:
        self._conversation = self._begin()
        self._forget_pictures()
        self._console.say("a new chat")

    def _fail(self, error: Q35Error) -> None:
        self._failed = True
        self._console.note(f"q35chat: {error}")


def script_lines(stdin: BinaryIO) -> Iterator[str]:
    """The lines of `stdin`, each as soon as it is there, without their ends.

    Raises UsageError, with the line's number, for one over `MAX_PROMPT_BYTES` and for bytes that
    are not UTF-8.
    """
    number = 0
    while line := stdin.readline(MAX_PROMPT_BYTES + _LINE_END_BYTES):
        number += 1
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        yield checked_text(text, f"line {number} on stdin")


def typed_lines(say: Callable[[str], None]) -> Iterator[str]:
    """What is typed, line by line, until Ctrl+D; `say` tells what could not be taken."""
    with suppress(ImportError):
        import readline  # noqa: F401  (gives input() editing and history)
    while True:
        try:
            line = checked_argument(input("> "), "the line")
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("\n(Ctrl+D leaves)")
        except UnicodeDecodeError as error:
            say(f"q35chat: the line is not {error.encoding}; type it again")
        except UsageError as error:
            say(f"q35chat: {error}")
        else:
            yield line
