"""`q35chat sessions`: reads the store and prints, with nothing that steers a terminal.

Needs no model.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.errors import UsageError
from q35chat.processes import program
from q35chat.text import json_safe, safe_line

if TYPE_CHECKING:
    from q35chat.store import Store

SHOWN_ID = 8

sessions = typer.Typer(
    name="sessions",
    help="Chats kept on this machine: list, show, search, export, import, rename, delete.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)

SessionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The chat's id, or the beginning of it.")
]
OrLatest = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]", help="The chat's id, or the beginning of it. Default: the latest."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@sessions.command("list")
def list_sessions(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The most to show. Default: all.")
    ] = None,
    as_json: AsJson = False,
    _debug: opt.Debug = False,
) -> int:
    """List chats, the latest first; a warm one goes on without being read again."""
    from q35chat.states.listing import owner_name, stored_states
    from q35chat.store.folder import states_folder
    from q35chat.text import turn_count

    console = Console.standard()
    with opened_store(console) as store:
        found = store.listed()[:limit]
        owners = {state.name.owner for state in stored_states(states_folder(store.folder))}
    warm = {session.id for session in found if owner_name(session.id) in owners}
    if as_json:
        return print_json(
            console, [asdict(session) | {"warm": session.id in warm} for session in found]
        )
    for session in found:
        ident, said = session.id[:SHOWN_ID], turn_count(session.turns)
        state = "warm" if session.id in warm else ""
        print_line(
            console, when(session.updated), ident, f"{said:>14}", f"{state:4}", session.title
        )
    if not found:
        console.note(f"no chats yet; {program()} begins one")
    return 0


@sessions.command("show")
def show_session(session: OrLatest = None, _debug: opt.Debug = False) -> int:
    """Print a chat."""
    console = Console.standard()
    with opened_store(console) as store:
        console.out.write(store.markdown(_named(store, session)))
    return 0


@sessions.command("search")
def search_sessions(
    words: Annotated[list[str], typer.Argument(help="Words that a turn must hold, all of them.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most to show.")] = 20,
    as_json: AsJson = False,
    _debug: opt.Debug = False,
) -> int:
    """Find turns by their words."""
    console, query = Console.standard(), " ".join(words)
    with opened_store(console) as store:
        hits = store.search(query, limit)
    if as_json:
        return print_json(console, [asdict(hit) for hit in hits])
    for hit in hits:
        speaker = "you" if hit.role == "user" else "model"
        print_line(console, when(hit.updated), hit.session[:SHOWN_ID], f"{speaker:5}", hit.excerpt)
    if not hits:
        console.note(f"nothing found for {query!r}")
    return 0


@sessions.command("export")
def export_session(
    session: OrLatest = None,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", parser=opt.path, help="The same as --output."),
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
            parser=opt.path,
            help="Markdown: the folder, by default this one. JSON: a file or folder, by default "
            "stdout.",
        ),
    ] = None,
    _debug: opt.Debug = False,
) -> int:
    """Write a chat to files of your own."""
    if target is not None and output is not None:
        raise UsageError("FOLDER and --output name the same thing; give one of them")
    console, place = Console.standard(), target or output
    with opened_store(console) as store:
        ident = _named(store, session)
        if kind == "markdown":
            print_line(console, str(store.export_markdown(ident, place or Path())))
        elif place is not None:
            print_line(console, str(store.export_json(ident, place)))
        else:
            console.out.write(store.json(ident) + "\n")
    return 0


@sessions.command("import")
def import_sessions(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            parser=opt.path,
            help="What export wrote as JSON, ChatGPT's conversations.json, or a conversation of "
            "LM Studio.",
        ),
    ],
    _debug: opt.Debug = False,
) -> int:
    """Take chats from exports, also ChatGPT's and LM Studio's."""
    from q35chat.text import pluralise

    console = Console.standard()
    with opened_store(console) as store:
        for file in files:
            fresh, known = store.import_chats(file)
            for record in fresh:
                print_line(console, when(record.updated), record.id[:SHOWN_ID], record.title)
            if known:
                console.note(f"here already: {pluralise(known, 'chat')} of {file}")
    return 0


@sessions.command("rename")
def rename_session(
    session: SessionArgument,
    title: Annotated[str, typer.Argument(help="The new title.")],
    _debug: opt.Debug = False,
) -> int:
    """Give a chat another title."""
    from q35chat.commands.prompt_input import checked_argument

    title = " ".join(checked_argument(title, "the title").split())
    if not title:
        raise UsageError("a title needs at least one character")
    with opened_store(Console.standard()) as store:
        store.rename(store.resolve(session), title)
    return 0


@sessions.command("delete")
def delete_sessions(
    names: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids, or the beginnings of them.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    _debug: opt.Debug = False,
) -> int:
    """Delete chats, their pictures and drafts for good."""
    from q35chat.tui.chat.drafts import Drafts

    console = Console.standard()
    with opened_store(console) as store:
        records = map(store.record, map(store.resolve, names))
        titles = {record.id: record.title for record in records}
        if not (yes or _agrees(console, titles)):
            console.note("nothing was deleted")
            return 1
        drafts = Drafts.at_home()
        for ident in titles:
            store.delete(ident)
            try:
                drafts.forget(ident)
            except OSError as error:
                console.note(f"the draft of {ident[:SHOWN_ID]} stays: {error}")
    return 0


@contextmanager
def opened_store(console: Console) -> Iterator[Store]:
    """The store; what is wrong with it, and with the chat that was loaded, is said."""
    from q35chat.store import Store

    with Store() as store:
        if store.message:
            console.note(store.message)
        yield store
        if store.damaged_chat:
            console.note(store.damaged_chat)


def _named(store: Store, session: str | None) -> str:
    return store.latest() if session is None else store.resolve(session)


def _agrees(console: Console, titles: dict[str, str]) -> bool:
    """Whether the user, who is asked, wants these chats deleted."""
    from q35chat.text import pluralise

    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("sessions delete asks first; without a terminal give --yes")
    for ident, title in titles.items():
        console.note(f"{ident[:SHOWN_ID]}  {title}")
    console.err.write(f"Delete {pluralise(len(titles), 'chat')} for good? [y/N] ")
    console.err.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def when(updated: float) -> str:
    """A time as it is shown in lists."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(updated))


def print_line(console: Console, *parts: str) -> None:
    """Print what stands in a row of a list."""
    console.out.write(safe_line("  ".join(parts), limit=4096) + "\n")


def print_json(console: Console, value: object) -> int:
    """Print a value; the exit code."""
    import json

    console.out.write(json_safe(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")
    return 0
