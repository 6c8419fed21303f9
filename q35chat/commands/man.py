"""`q35chat man`: the manual page, made of what the commands say of themselves.

Knows how a page is written for `man`; every word on commands and options is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from q35chat import __version__
from q35chat.commands import options as opt
from q35chat.commands.console import Console

_METAVARS: Final = {
    "int": "N",
    "int range": "N",
    "float": "NUMBER",
    "float range": "NUMBER",
    "str": "TEXT",
    "path": "PATH",
}
_EXITS: Final = (
    ("0", "done"),
    ("1", "it failed; one line on stderr says why and what to do"),
    ("2", "wrong usage: an unknown option, an empty prompt, a bad settings file"),
    ("3", "convert and doctor --operators: no converter here"),
    ("130", "stopped by Ctrl+C"),
    ("141", "the reader of stdout went away before all was written"),
    ("129, 143", "ended by SIGHUP or SIGTERM; what was written is kept"),
)


def man(context: typer.Context, _debug: opt.Debug = False) -> int:
    """Print the manual page, in the language of man."""
    console = Console.standard()
    console.out.writelines(f"{line}\n" for line in page(context.find_root()))
    console.out.flush()
    return 0


def page(context: Any) -> Iterator[str]:  # noqa: ANN401  (typer's own)
    """The lines of the page on the program whose context this is, in roff."""
    root = context.command
    commands = {name: root.get_command(context, name) for name in root.list_commands(context)}
    yield f'.TH Q35CHAT 1 "" "q35chat {__version__}"'
    yield ".SH NAME"
    yield rf"q35chat \- {_text('chat with Qwen3.5 on this machine, with text and pictures')}"
    yield ".SH SYNOPSIS"
    yield r"\fBq35chat\fR [\fIoptions\fR]"
    for name in commands:
        yield ".br"
        yield rf"\fBq35chat {_text(name)}\fR \fI...\fR"
    yield ".SH DESCRIPTION"
    yield _help(root.help)
    yield _text("Without a command the chat opens, as chat does with the same options.")
    of_chat = {it.name for it in commands["chat"].params}
    yield from _parameters(context, [it for it in root.params if it.name not in of_chat])
    yield ".SH COMMANDS"
    for name, command in commands.items():
        yield from _command(context, name, command)
    yield ".SH EXIT STATUS"
    for code, words in _EXITS:
        yield from _entry(rf"\fB{code}\fR", _text(words))
    yield ".SH FILES"
    yield from _files()


def _command(context: Any, name: str, command: Any) -> Iterator[str]:  # noqa: ANN401
    """A section on a command, then those on the commands within it."""
    inside = getattr(command, "commands", {})
    arguments = [it for it in command.params if it.param_type_name == "argument"]
    words = [name, *(it.make_metavar(context) for it in arguments)]
    yield f'.SS "{_text(" ".join(words))}"'
    yield _help(command.help)
    yield from _parameters(context, command.params)
    for part, within in inside.items():
        yield from _command(context, f"{name} {part}", within)


def _parameters(context: Any, parameters: list[Any]) -> Iterator[str]:  # noqa: ANN401
    for it in parameters:
        is_option = it.param_type_name == "option"
        names = [*it.opts, *it.secondary_opts] if is_option else [it.make_metavar(context)]
        head = ", ".join(rf"\fB{_text(name.strip())}\fR" for name in names if name.strip())
        if is_option and not it.is_flag:
            metavar = it.make_metavar(context).strip("<>[]")
            head += rf" \fI{_text(_METAVARS.get(metavar, metavar))}\fR"
        yield from _entry(head, " ".join(filter(None, _words(it, is_option=is_option))))


def _words(parameter: Any, *, is_option: bool) -> Iterator[str]:  # noqa: ANN401
    """What is said of a parameter: its help, its range, its default."""
    said = parameter.help or ""
    yield _help(said)
    low, high = (getattr(parameter.type, bound, None) for bound in ("min", "max"))
    if low is not None:
        yield f"At least {low:g}." if high is None else f"From {low:g} to {high:g}."
    plain = not (is_option and parameter.is_flag) and parameter.default not in (None, "")
    if plain and "Default:" not in said and not callable(parameter.default):
        yield _text(f"Default: {parameter.default}.")


def _files() -> Iterator[str]:
    from q35chat.bundle.library import models_folder
    from q35chat.settings import settings_path
    from q35chat.settings.templates import templates_folder

    for path, words in (
        (settings_path(), "the settings"),
        (templates_folder(), "prompt templates, a file NAME.md each"),
        (models_folder(), "models by their names"),
    ):
        home = str(path).replace(str(Path.home()), "~", 1)
        yield from _entry(rf"\fI{_text(home)}\fR", _text(words))


def _entry(head: str, words: str) -> Iterator[str]:
    yield ".TP"
    yield head
    yield words or r"\&"


def _help(text: str) -> str:
    """What a command or an option says, without the markup of the help."""
    from rich.text import Text

    return _text(Text.from_markup(text).plain)


def _text(text: str) -> str:
    """A text on one line that is no request of roff."""
    line = " ".join(text.split())
    line = line.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{line}" if line[:1] in (".", "'") else line
