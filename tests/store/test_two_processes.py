from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.store.builders import picture
from tests.store.busy_child import ROUNDS

ROOT = Path(__file__).parents[2]


def run_together(folder: Path, names: list[str]) -> list[str]:
    """Start a busy process for each name, let all go at once; the messages they began with."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.busy_child", str(folder), name],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    messages = []
    try:
        for child in children:
            assert child.stdout is not None
            messages.append(child.stdout.readline().strip())
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        assert [child.wait(120) for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()
            child.communicate()
    return messages


@pytest.mark.parametrize("damaged", [False, True])
def test_two_processes_at_once_lose_nothing(tmp_path: Path, damaged: bool) -> None:
    if damaged:
        (tmp_path / NAME).write_bytes(b"no database" * 500)
    messages = run_together(tmp_path, ["one", "two"])
    assert sum(bool(message) for message in messages) == int(damaged)
    with Store(tmp_path) as store:
        kept = {f"{name}-{number}" for name in ("one", "two") for number in range(0, ROUNDS, 2)}
        assert {one.id for one in store.listed()} == kept
        for ident in kept:
            record, (question, answer) = store.load(ident)
            assert record.title == f"chat {ident}"
            assert answer.turn.text == "word " * 4
            assert question.turn.attachments == (picture(b"shown in every chat"),)
        assert len(store.search("question one")) == ROUNDS // 2
