"""A shell in a real terminal: a tmux server of its own, keys in, what stands on the screen out.

A pipe of all that is written to the terminal wakes whoever waits for words.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.environment import SIZE, environment_without
from tests.support.patience import Patience

_CONFIG = """\
set -g default-terminal tmux-256color
set -g status off
set -s escape-time 0
"""


class Tmux:
    """One window with a shell in it. `folder` holds its socket, its settings and its pipe."""

    def __init__(
        self, folder: Path, cwd: Path, environment: Mapping[str, str], size: tuple[int, int]
    ) -> None:
        config, pipe = folder / "tmux.conf", folder / "output"
        config.write_text(_CONFIG, "ascii")
        os.mkfifo(pipe)
        self._wakes = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._socket = str(folder / "socket")
        self._runs = 0
        variables = [part for item in environment.items() for part in ("-e", "=".join(item))]
        columns, rows = map(str, size)
        self._tmux("-f", str(config), "new-session", "-d", "-x", columns, "-y", rows,
                   "-c", str(cwd), *variables, "/bin/sh")  # fmt: skip
        self.resize(*size)  # once a window came up at tmux's own 80 by 24
        self._tmux("pipe-pane", f"cat > '{pipe}'")

    def run(self, *command: str) -> None:
        """Type a command."""
        self._runs += 1
        self.type(f"{shlex.join(command)}; echo command {self._runs} ended with $?")
        self.press("Enter")

    @property
    def good_end(self) -> str:
        """What the shell says once the command has ended with 0."""
        return f"command {self._runs} ended with 0"

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, such as `Enter`, `C-q`, `Escape`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Letters, as if typed."""
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """A bracketed paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> str:
        """The rows on the screen."""
        return self._tmux("capture-pane", "-p")

    @property
    def flat(self) -> str:
        """The same without line breaks and repeated spaces."""
        return " ".join(self.screen.split())

    @property
    def colours(self) -> str:
        """The rows with their colours."""
        return self._tmux("capture-pane", "-p", "-e")

    def see(self, words: str, *, gone: bool = False) -> None:
        """Wait until the words are on the screen, or no longer."""
        problem = f"{words!r} {'stays' if gone else 'never came'}"
        self._until(lambda: (words in self.flat) is not gone, problem)

    def see_times(self, words: str, times: int) -> None:
        """Wait until the words are on the screen exactly so often."""
        problem = f"{words!r} was never there {times} times"
        self._until(lambda: self.flat.count(words) == times, problem)

    def see_any(self, *choices: str) -> str:
        """Wait until one of the texts is on the screen; which."""
        self._until(lambda: any(words in self.flat for words in choices), f"none of {choices} came")
        return next(words for words in choices if words in self.flat)

    def close(self) -> None:
        """End whatever still runs."""
        self._tmux("kill-server")
        os.close(self._wakes)

    def _until(self, happened: Callable[[], bool], problem: str) -> None:
        patience = Patience()
        while not happened():
            left = patience.left_s
            ready = left > 0 and select.select([self._wakes], [], [], left)[0]
            assert ready, f"{problem}:\n{self.screen}"
            os.read(self._wakes, 1 << 16)
            patience.progress()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=environment_without(*SIZE),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def tmux(
    folder: Path,
    cwd: Path,
    environment: Mapping[str, str],
    size: tuple[int, int] = (120, 36),
) -> Iterator[Tmux]:
    """A terminal that is gone afterwards, with all that ran in it."""
    terminal = Tmux(folder, cwd, environment, size)
    try:
        yield terminal
    finally:
        terminal.close()
