"""`q35chat cache`: the states that are kept of chats, so that they go on without being read again.

Needs no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.commands.sessions import SHOWN_ID, opened_store, print_json, print_line, when

if TYPE_CHECKING:
    from collections.abc import Mapping

    from q35chat.states.listing import StoredState


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove them: the chats stay, and are read again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    _debug: opt.Debug = False,
) -> int:
    """Show what is kept on disk so that chats go on without being read again, or remove it."""
    from q35chat.errors import StoreError
    from q35chat.states.listing import drop_states, owner_name, stored_states
    from q35chat.store.folder import states_folder
    from q35chat.text import pluralise, readable_size

    console = Console.standard()
    with opened_store(console) as store:
        folder = states_folder(store.folder)
        chats = {owner_name(one.id): one for one in store.listed()}
    found = drop_states(folder) if clear else stored_states(folder)
    stayed = len(stored_states(folder)) if clear else 0
    if stayed:
        raise StoreError(
            f"{pluralise(stayed, 'state')} cannot be removed from {folder}: check its permissions, "
            "then clear it again"
        )
    total = sum(state.size for state in found)
    titles = {owner: (chat.id, chat.title) for owner, chat in chats.items()}
    if as_json:
        return print_json(console, [_as_json(state, titles) for state in found])
    for state in () if clear else found:
        ident, title = _shown(state, titles)
        size, tokens = readable_size(state.size), pluralise(state.name.count, "token")
        print_line(
            console, when(state.used), ident[:SHOWN_ID], f"{tokens:>14}", f"{size:>9}", title
        )
    done = "removed" if clear else f"in {folder}"
    console.note(f"{pluralise(len(found), 'state')}, {readable_size(total)}, {done}")
    return 0


def _shown(state: StoredState, titles: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The chat's id and title, or what stands for them."""
    from q35chat.states.listing import ANYBODY

    alike = state.name.owner == ANYBODY
    other = "what several chats begin with" if alike else "a chat that is gone"
    return titles.get(state.name.owner, ("-" * SHOWN_ID, other))


def _as_json(state: StoredState, titles: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    session, _ = titles.get(state.name.owner, (None, None))
    return {
        "session": session,
        "tokens": state.name.count,
        "bytes": state.size,
        "used": state.used,
    }
