"""A process that uses the store as fast as it can."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from q35chat.store import Store
from tests.store.builders import answer, conversation, later, picture, user

ROUNDS = 12


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: Path, name: str) -> None:
    with Store(folder) as store:
        say(store.message)
        sys.stdin.readline()
        for number in range(ROUNDS):
            ident = f"{name}-{number}"
            shared = picture(b"shown in every chat")
            growing = answer(f"{ident}-a", f"{ident}-q", "")
            question = user(f"{ident}-q", None, f"question {name}", shared)
            store.create(conversation(ident, question.id), (question,))
            for length in range(5):
                turn = replace(growing.turn, text="word " * length)
                store.save(
                    later(conversation(ident), growing.id, number), (replace(growing, turn=turn),)
                )
            store.search("question")
            store.rename(ident, f"chat {ident}")
            if number % 2:
                store.delete(ident)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
