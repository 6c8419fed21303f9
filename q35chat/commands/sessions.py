"""`q35chat sessions`: the arguments. What the commands do lies in `session_work`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.errors import UsageError

app = typer.Typer(
    name="sessions",
    help="Chats kept on this machine: list, show, search, export, rename, delete.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)

Session = Annotated[
    str, typer.Argument(metavar="ID", help="The chat's id, or the beginning of it.")
]
OrLatest = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]", help="The chat's id, or the beginning of it. Default: the latest."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_sessions(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The most to show. Default: all.")
    ] = None,
    as_json: AsJson = False,
    _debug: opt.Debug = False,
) -> int:
    """List chats, the latest first."""
    from q35chat.commands.session_work import show_list  # noqa: PLC0415

    return show_list(Console.standard(), limit, as_json=as_json)


@app.command("show")
def show_session(session: OrLatest = None, _debug: opt.Debug = False) -> int:
    """Print a chat."""
    from q35chat.commands.session_work import show_one  # noqa: PLC0415

    return show_one(Console.standard(), session)


@app.command("search")
def search_sessions(
    words: Annotated[list[str], typer.Argument(help="Words that a turn must hold, all of them.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most to show.")] = 20,
    as_json: AsJson = False,
    _debug: opt.Debug = False,
) -> int:
    """Find turns by their words."""
    from q35chat.commands.session_work import show_hits  # noqa: PLC0415

    return show_hits(Console.standard(), " ".join(words), limit, as_json=as_json)


@app.command("export")
def export_session(
    session: OrLatest = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The same as --output.")
    ] = None,
    kind: Annotated[
        Literal["markdown", "json"],
        typer.Option("--format", "-f", help="Markdown with pictures beside it, or all as JSON."),
    ] = "markdown",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Markdown: the folder, by default this one. JSON: a file or folder, by default "
            "stdout.",
        ),
    ] = None,
    _debug: opt.Debug = False,
) -> int:
    """Write a chat to files of your own."""
    from q35chat.commands.session_work import export_one  # noqa: PLC0415

    if target is not None and output is not None:
        raise UsageError("FOLDER and --output name the same thing; give one of them")
    return export_one(Console.standard(), session, kind, target or output)


@app.command("rename")
def rename_session(
    session: Session,
    title: Annotated[str, typer.Argument(help="The new title.")],
    _debug: opt.Debug = False,
) -> int:
    """Give a chat another title."""
    from q35chat.commands.session_work import rename_one  # noqa: PLC0415

    return rename_one(Console.standard(), session, title)


@app.command("delete")
def delete_sessions(
    sessions: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids, or the beginnings of them.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    _debug: opt.Debug = False,
) -> int:
    """Delete chats and their pictures for good."""
    from q35chat.commands.session_work import delete_some  # noqa: PLC0415

    return delete_some(Console.standard(), sessions, ask=not yes)
