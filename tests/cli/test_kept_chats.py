"""Chats that go on without being read again, from one command to the next."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from q35chat.cli import run
from q35chat.store.folder import data_folder, states_folder
from tests.cli.processes import running
from tests.support.exported import random_bundle

LONG = "Tell me about the red picture and the blue one. " * 5
AGAIN = 32
"""Tokens that a short question takes with the answer of 8 before it, at most."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_bundle(tmp_path_factory, precision="fp32", max_seq_len=512)


class Shell:
    """Runs command lines in this process."""

    def __init__(self, bundle: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._bundle = bundle
        self._capture = capture
        self.err = ""

    def run(self, *arguments: str) -> str:
        assert run(arguments) == 0
        said = self._capture.readouterr()
        self.err = said.err
        return said.out

    def ask(self, *arguments: str) -> dict[str, Any]:
        options = ("--json", "--greedy", "--max-new-tokens", "8", "-m", str(self._bundle))
        answer: dict[str, Any] = json.loads(self.run("ask", *options, *arguments))
        return answer

    def new_tokens(self, *arguments: str) -> int:
        answer = self.ask(*arguments)
        return int(answer["prompt_tokens"] - answer["reused_tokens"])


@pytest.fixture
def shell(bundle: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(bundle, capsys)


def test_the_next_command_reads_only_its_own_question(shell: Shell) -> None:
    first = shell.ask(LONG)
    assert (first["reused_tokens"], first["prompt_tokens"] > 3 * AGAIN) == (0, True)
    for question in ("And?", "Why?"):
        assert shell.new_tokens("--continue", question) <= AGAIN
    assert shell.new_tokens("--session", first["session"], "So?") <= AGAIN


def test_thinking_is_dropped_and_only_the_answer_is_read(shell: Shell) -> None:
    shell.ask("--thinking-budget", "12", LONG)
    assert shell.new_tokens("--continue", "And?") <= AGAIN


def test_the_answer_is_the_one_of_reading_all(shell: Shell) -> None:
    session = shell.ask(LONG)["session"]
    cold = shell.ask("--continue", "--state-cache-mib", "0", "And?")
    assert cold["reused_tokens"] == 0
    again = shell.ask(LONG)
    assert again["session"] != session
    warm = shell.ask("--continue", "And?")
    assert warm["reused_tokens"] > 0
    assert warm["token_ids"] == cold["token_ids"]


def test_nothing_is_written_where_nothing_is_to_be_kept(shell: Shell) -> None:
    shell.ask("--no-save", "--system", LONG, "Hello")
    shell.ask("--state-cache-mib", "0", LONG)
    assert not states_folder().exists()


def test_instructions_that_were_read_once_are_warm_for_every_chat(shell: Shell) -> None:
    shell.ask("--system", LONG, "Hello")
    assert shell.new_tokens("--system", LONG, "Good day") <= AGAIN
    assert shell.new_tokens("--no-save", "--system", LONG, "Hi") <= AGAIN


def test_lists_tell_which_chats_are_warm_and_how_much_that_takes(shell: Shell) -> None:
    shell.ask(LONG)
    session = shell.ask("--state-cache-mib", "0", "Cold")["session"]
    cold, warm = shell.run("sessions", "list").splitlines()
    assert ("warm" in warm, "warm" in cold) == (True, False)
    told = json.loads(shell.run("sessions", "list", "--json"))
    assert [chat["warm"] for chat in told] == [False, True]
    (line,) = shell.run("cache").splitlines()
    assert "Tell me about the red" in line
    assert "tokens" in line
    (state,) = json.loads(shell.run("cache", "--json"))
    (file,) = states_folder().iterdir()
    assert (state["session"], state["bytes"]) == (told[1]["id"], file.stat().st_size)
    assert state["session"] != session


def test_clearing_leaves_the_chats_and_they_are_read_again(shell: Shell) -> None:
    shell.ask(LONG)
    assert len(list(states_folder().iterdir())) == 1
    assert shell.run("cache", "--clear") == ""
    assert list(states_folder().iterdir()) == []
    assert shell.ask("--continue", "And?")["reused_tokens"] == 0


def test_a_state_that_cannot_be_removed_is_told_as_a_failure(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.ask(LONG)
    monkeypatch.setattr("q35chat.states.listing.remove_state", lambda *_: False)
    assert run(["cache", "--clear"]) == 1
    said = capsys.readouterr().err
    assert f"1 state cannot be removed from {states_folder()}: check its permissions" in said
    assert "removed\n" not in said


def test_a_process_killed_in_an_answer_leaves_the_state_before_its_turn(
    shell: Shell, bundle: Path
) -> None:
    shell.ask(LONG)
    line = [sys.executable, "-m", "q35chat", "ask", "--continue", "-m", str(bundle), "--greedy"]
    with running([*line, "And then, what else is there to say?"]) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.kill()
        process.wait()
    after = shell.ask("--continue", "So?")
    assert after["reused_tokens"] > len(LONG.split())


def test_a_folder_that_cannot_be_written_costs_only_the_reading(shell: Shell) -> None:
    data_folder().mkdir(parents=True, exist_ok=True)
    states_folder().write_text("in the way")
    shell.ask(LONG)
    assert shell.err == ""
    assert shell.ask("--continue", "And?")["reused_tokens"] == 0
