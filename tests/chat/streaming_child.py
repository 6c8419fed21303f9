"""A process that answers one question and shows each event, to be killed at any point.

It prints an event and goes on when it gets a line, so that its reader decides where it stands.
"""

from __future__ import annotations

import sys
from pathlib import Path

from q35chat.chat.events import Token
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.store import Store
from tests.doubles.scripted_backend import Reply, ScriptedBackend

ANSWER = "Ein langer Satz, 一个很长的句子, with 🐈 in it."
REASONING = "Let me think."


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: Path, session: str | None) -> None:
    backend = ScriptedBackend(lambda turns: Reply(ANSWER, REASONING))
    settings = ChatSettings(thinking=True)
    workspace = Workspace(Store(folder), lambda: (backend, settings))
    workspace.load()
    chat = workspace.pick(session)
    events = chat.send("Tell me") if session is None else chat.continue_answer()
    say(chat.id)
    for event in events:
        kind = type(event).__name__
        token = (
            f" {event.kind} {ord(event.text)}" if isinstance(event, Token) and event.text else ""
        )
        say(kind + token)
        sys.stdin.readline()
    say("end")
    sys.stdin.readline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
