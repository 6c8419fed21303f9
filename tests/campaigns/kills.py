"""`python -m tests.campaigns.kills [--count N] [--seed S]`: SIGKILL at any moment.

A child writes chats, exports them or deletes them; it is killed after a random time. Then the data
folder is opened as the next start does, and must hold every turn that was told as written, nothing
of what was told as deleted, and no file that nobody names.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from q35chat.processes import python_command, python_environment
from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.store.builders import answer, conversation, picture, user

_LONGEST_S = 0.4


def work(folder: Path, seed: int) -> None:
    """Write, export and delete until killed; tell what is done, a line each, when it is done."""
    chance, store, kept = random.Random(seed), Store(folder), list[str]()
    store.sweep()
    kept += [session.id for session in store.sessions()]
    while True:
        ident = f"{chance.getrandbits(64):016x}"
        if kept and chance.random() < 0.3:
            gone = kept.pop(chance.randrange(len(kept)))
            tell("deleting", gone)
            store.delete(gone)
            tell("deleted", gone)
        elif kept and chance.random() < 0.2:
            store.export_markdown(chance.choice(kept), folder / "exports")
        else:
            shown = picture(chance.randbytes(chance.randrange(1, 200_000)))
            text = f"word{ident} " * chance.randrange(1, 300)
            turns = (user(f"{ident}u", None, text, shown), answer(f"{ident}a", f"{ident}u", text))
            store.create(conversation(ident, f"{ident}a", title=f"title{ident}"), turns)
            tell("written", ident)
            kept.append(ident)


def tell(what: str, ident: str) -> None:
    """A line that is out before anything else is done."""
    os.write(1, f"{what} {ident}\n".encode())


def kill_once(folder: Path, chance: random.Random, known: dict[str, str]) -> None:
    """Start the work, kill it, and add to `known` what it told of each chat."""
    child = subprocess.Popen(
        python_command("-m", "tests.campaigns.kills", "--work", str(folder), "--seed",
                       str(chance.getrandbits(32))),
        stdout=subprocess.PIPE,
        env=python_environment(),
    )  # fmt: skip
    assert child.stdout is not None
    told = child.stdout.readline()  # it has begun
    try:
        child.wait(chance.uniform(0, _LONGEST_S))
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    told += child.stdout.read()
    if child.wait() != -signal.SIGKILL:
        raise AssertionError(f"the work ended by itself with {child.returncode}")
    for line in told.decode().splitlines():
        what, ident = line.split()
        known[ident] = what


def findings(folder: Path, known: dict[str, str]) -> list[str]:
    """What is wrong after a kill, a line each."""
    with Store(folder) as store:
        store.sweep()
        there = {session.id for session in store.sessions()}
        found = [store.message] if store.message else []
        found += _wrong_with_chats(store, there)
    raw = b"".join(path.read_bytes() for path in folder.glob(f"{NAME}*"))
    for ident, what in known.items():
        if what == "written" and ident not in there:
            found.append(f"{ident} was written and is lost")
        if what == "deleted" and (ident in there or ident.encode() in raw):
            found.append(f"{ident} was deleted and can be read")
    return found + _half_exports(folder / "exports")


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
        if sum(what == "written" for what in known.values()) > 200:
            with Store(folder) as store:
                for session in store.sessions():
                    store.delete(session.id)
                    known[session.id] = "deleted"
    return found


def main() -> int:
    """The campaign, or its work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        found = run(options.count, options.seed, Path(folder))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{options.count} kills, {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
