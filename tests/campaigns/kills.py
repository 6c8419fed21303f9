"""`python -m tests.campaigns.kills [--count N] [--seed S]`: SIGKILL at any moment.

A child writes chats with their states and drafts, exports them or deletes them; it is killed after
a random time. Then the data folder is opened as the next start does, and must hold every turn that
was told as written, nothing of what was told as deleted, and no file that nobody names.

Children are forked by a server that has loaded everything, so that a kill costs what it hits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np

from q35chat.states.file import Array
from q35chat.states.listing import stored_states
from q35chat.states.pool import KEYS, StatePool, name_of
from q35chat.store import Store
from q35chat.store.folder import states_folder
from q35chat.store.opening import NAME
from q35chat.tui.chat.drafts import Drafts
from tests.store.builders import answer, conversation, picture, user

DRAFTS: Final = "drafts.json"
_LONGEST_S: Final = 0.4
_STATES: Final = 1 << 30
_MOST_CHATS: Final = 40
"""With more of them, what is known is deleted: every chat is read after every kill."""
_TOLD: Final = 100
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["numpy", "q35chat.states.pool", "q35chat.store", "q35chat.tui.chat.drafts",
     "tests.store.builders"]
)  # fmt: skip


def work(folder: Path, seed: int, told: Connection) -> None:
    """Write, export and delete until killed; tell what is done, a line each, when it is done."""

    def tell(what: str, ident: str) -> None:
        os.write(told.fileno(), f"{what} {ident}\n".encode())  # out before anything else is done

    chance, store, kept = random.Random(seed), Store(folder), list[str]()
    pool, drafts = StatePool(states_folder(folder), _STATES), Drafts(folder / DRAFTS)
    tell("begun", "")
    store.sweep()
    kept += [one.id for one in store.listed()]
    while True:
        ident = f"{chance.getrandbits(64):016x}"
        if kept and chance.random() < 0.3:
            gone = kept.pop(chance.randrange(len(kept)))
            tell("deleting", gone)
            store.delete(gone)
            drafts.forget(gone)
            tell("deleted", gone)
        elif kept and chance.random() < 0.2:
            drafts.put(chance.choice(kept), f"draft{ident}")
            drafts.save()
            keys: Array = np.arange(chance.randrange(1, 50_000))
            pool.write(name_of(chance.choice(kept), "m" * 16, keys), [(KEYS, keys)], lambda: False)
        elif kept and chance.random() < 0.2:
            store.export_markdown(chance.choice(kept), folder / "exports")
        else:
            shown = picture(chance.randbytes(chance.randrange(1, 200_000)))
            text = f"word{ident} " * chance.randrange(1, 300)
            turns = (user(f"{ident}u", None, text, shown), answer(f"{ident}a", f"{ident}u", text))
            store.create(conversation(ident, f"{ident}a", title=f"title{ident}"), turns)
            tell("written", ident)
            kept.append(ident)


def kill_once(folder: Path, chance: random.Random, known: dict[str, str]) -> None:
    """Start the work, kill it, and add to `known` what it told of each chat."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    child = _FORKS.Process(target=work, args=(folder, chance.getrandbits(32), theirs), daemon=True)
    child.start()
    theirs.close()
    told = os.read(ours.fileno(), 1 << 16)  # it has begun
    child.join(chance.uniform(0, _LONGEST_S))
    child.kill()
    while part := os.read(ours.fileno(), 1 << 16):
        told += part
    child.join()
    ours.close()
    if child.exitcode != -signal.SIGKILL:
        raise AssertionError(f"the work ended by itself with {child.exitcode}")
    for line in told.decode().splitlines():
        what, _, ident = line.partition(" ")
        if ident:
            known[ident] = what


def findings(folder: Path, known: dict[str, str]) -> list[str]:
    """What is wrong after a kill, a line each."""
    with Store(folder) as store:
        store.sweep()
        there = {one.id for one in store.listed()}
        found = [store.message] if store.message else []
        found += _wrong_with_chats(store, there)
    Drafts(folder / DRAFTS).sweep(there)
    raw = b"".join(path.read_bytes() for path in (*folder.glob(f"{NAME}*"), *folder.glob(DRAFTS)))
    for ident, what in known.items():
        if what == "written" and ident not in there:
            found.append(f"{ident} was written and is lost")
        if what == "deleted" and (ident in there or ident.encode() in raw):
            found.append(f"{ident} was deleted and can be read")
    return found + _half_exports(folder / "exports") + _wrong_states(states_folder(folder), there)


def _wrong_with_chats(store: Store, there: set[str]) -> list[str]:
    found, shown = list[str](), set[str]()
    for ident in there:
        _, turns = store.load(ident)
        pictures = [one for turn in turns for one in turn.turn.attachments]
        if len(turns) != 2 or store.damaged_chat or not all(one.data for one in pictures):
            found.append(f"{ident} has {len(turns)} turns, {len(pictures)} pictures")
        shown |= {one.sha256 for one in pictures}
    kept = {path.name for path in (store.folder / "pictures").glob("??/*")}
    if kept != shown:
        found.append(f"pictures: {len(kept - shown)} left, {len(shown - kept)} lost")
    return found


def _wrong_states(folder: Path, there: set[str]) -> list[str]:
    """States that cannot be read or belong to no chat, and what stays of one that was half
    written when the next one is."""
    pool, keys = StatePool(folder, _STATES), np.arange(3)
    pool.write(name_of("one", "m" * 16, keys), [(KEYS, keys)], lambda: False)
    pool.remove(name_of("one", "m" * 16, keys))
    found = [f"{path.name} is left" for path in folder.iterdir() if path.suffix != ".state"]
    for state in stored_states(folder):
        if state.name.owner not in there:
            found.append(f"{state.name} belongs to no chat")
        pool.read(state.name)
    return found


def _half_exports(folder: Path) -> list[str]:
    return [
        f"{path.name} is half of an export"
        for path in (folder.glob("*") if folder.exists() else ())
        if (path.suffix == ".md" and not path.read_text().endswith("\n"))
        or (path.name.endswith("-pictures") and not _text_of(path).exists())
    ]


def _text_of(pictures: Path) -> Path:
    text = pictures.with_name(f"{pictures.name.removesuffix('-pictures')}.md")
    return text if text.exists() else pictures / text.name  # the next export removes it


def run(count: int, seed: int, folder: Path) -> list[str]:
    """`count` kills over one data folder; what was found."""
    chance, known, found = random.Random(seed), dict[str, str](), list[str]()
    for number in range(count):
        kill_once(folder, chance, known)
        found += [f"kill {number}: {line}" for line in findings(folder, known)]
        if sum(what == "written" for what in known.values()) > _MOST_CHATS:
            with Store(folder) as store:
                for session in store.listed():
                    store.delete(session.id)
                    Drafts(folder / DRAFTS).forget(session.id)
                    known[session.id] = "deleted"
        if (number + 1) % _TOLD == 0:
            sys.stdout.write(f"{number + 1} of {count}, {len(found)} findings\n")
            sys.stdout.flush()
    return found


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.count, options.seed, Path(folder))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{options.count} kills, {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
