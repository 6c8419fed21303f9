"""What `q35chat sessions` does: reads the store and prints, with nothing that steers a terminal.

Needs no model.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from q35chat.commands.console import Console
from q35chat.commands.prompt_input import checked_argument
from q35chat.errors import UsageError
from q35chat.processes import program
from q35chat.store import Store
from q35chat.text import json_safe, pluralise, safe_line, turn_count

SHOWN_ID = 8


def show_list(console: Console, limit: int | None, *, as_json: bool) -> int:
    """A line a conversation: time, id, turns, title."""
    with _store(console) as store:
        sessions = store.sessions()[:limit]
    if as_json:
        _print_json(console, [asdict(session) for session in sessions])
        return 0
    for session in sessions:
        ident, said = session.id[:SHOWN_ID], turn_count(session.turns)
        _print(console, _when(session.updated), ident, f"{said:>14}", session.title)
    if not sessions:
        console.note(f"no chats yet; {program()} begins one")
    return 0


def show_one(console: Console, session: str | None) -> int:
    """A conversation as Markdown."""
    with _store(console) as store:
        console.out.write(store.markdown(_named(store, session)))
        _tell_damage(console, store)
    return 0


def show_hits(console: Console, query: str, limit: int, *, as_json: bool) -> int:
    """A line a turn: id of its conversation, who said it, the text around the first word."""
    with _store(console) as store:
        hits = store.search(query, limit)
    if as_json:
        _print_json(console, [asdict(hit) for hit in hits])
        return 0
    for hit in hits:
        speaker = "you" if hit.role == "user" else "model"
        _print(console, _when(hit.updated), hit.session[:SHOWN_ID], f"{speaker:5}", hit.excerpt)
    if not hits:
        console.note(f"nothing found for {query!r}")
    return 0


def export_one(console: Console, session: str | None, kind: str, output: Path | None) -> int:
    """Write one conversation as Markdown into a folder, or as JSON to a file, a folder or
    stdout."""
    with _store(console) as store:
        ident = _named(store, session)
        if kind == "markdown":
            _print(console, str(store.export_markdown(ident, output or Path())))
        elif output is not None:
            _print(console, str(store.export_json(ident, output)))
        else:
            console.out.write(store.json(ident) + "\n")
        _tell_damage(console, store)
    return 0


def rename_one(console: Console, session: str, title: str) -> int:
    """Give one conversation another title."""
    title = " ".join(checked_argument(title, "the title").split())
    if not title:
        raise UsageError("a title needs at least one character")
    with _store(console) as store:
        store.rename(store.resolve(session), title)
    return 0


def delete_some(
    console: Console, sessions: Sequence[str], *, ask: bool, answers: TextIO | None = None
) -> int:
    """Delete conversations, all that are named or, after a "no", none; the exit code."""
    answers = answers or sys.stdin
    with _store(console) as store:
        records = map(store.record, map(store.resolve, sessions))
        titles = {record.id: record.title for record in records}
        if ask and not _agrees(console, answers, titles):
            console.note("nothing was deleted")
            return 1
        for ident in titles:
            store.delete(ident)
    return 0


def _named(store: Store, session: str | None) -> str:
    return store.latest() if session is None else store.resolve(session)


def _agrees(console: Console, answers: TextIO | None, titles: dict[str, str]) -> bool:
    if answers is None or not answers.isatty():
        raise UsageError("sessions delete asks first; without a terminal give --yes")
    for ident, title in titles.items():
        console.note(f"{ident[:SHOWN_ID]}  {title}")
    console.err.write(f"Delete {pluralise(len(titles), 'chat')} for good? [y/N] ")
    console.err.flush()
    return answers.readline().strip().lower() in {"y", "yes"}


def _store(console: Console) -> Store:
    store = Store()
    if store.message:
        console.note(store.message)
    return store


def _tell_damage(console: Console, store: Store) -> None:
    if store.damaged_chat:
        console.note(store.damaged_chat)


def _when(updated: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(updated))


def _print(console: Console, *parts: str) -> None:
    console.out.write(safe_line("  ".join(parts), limit=4096) + "\n")


def _print_json(console: Console, value: object) -> None:
    console.out.write(json_safe(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")
