"""The other end of the child process in which a bundle's tokenizer and template are run.

One child serves all of this process. It is started for the first request, and again where one has
ended it. Knows requests and answers, and what to say of a child that broke off; not what they mean.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from q35chat.errors import BundleError, Remedy
from q35chat.processes import folder_of_children, python_command, python_environment

SECONDS: Final = 20.0
"""Time on a core that a request may take, and a second more for each `_A_SECOND` characters."""
_A_SECOND: Final = 50_000
_MODULE: Final = "q35chat.chat.prompt.tokenizer_child"
_ENDLESS: Final = (
    "the bundle's chat template or tokenizer went on for too long and was ended; "
    "export the bundle again"
)
_STOPPED: Final = "stopped before the prompt was made"


class TokenizerProcess:
    """Requests from any thread, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._interrupted = False
        atexit.register(self.end)

    def start(self) -> None:
        """Start the child ahead of the first request."""
        with self._lock:
            self._started()

    def ask(
        self,
        name: str,
        which: tuple[Path, bool],
        wanted: Callable[[], bool],
        *arguments: Any,
        **options: Any,
    ) -> Any:  # noqa: ANN401
        """The answer of `Files.name` for a folder, of a model that sees pictures or none. Raises
        BundleError, also where it is not `wanted` any more when its turn comes."""
        given = json.dumps([arguments, options])
        seconds = SECONDS + len(given) / _A_SECOND
        where = json.dumps([name, os.fsdecode(which[0]), which[1], seconds])
        request = f"{where[:-1]}, {given[1:]}\n".encode()
        with self._lock:
            if not wanted():
                raise BundleError(_STOPPED)
            self._asked, self._interrupted = True, False
            try:
                kind, value = self._answered(request)
            finally:
                self._asked = False
        if kind == "refused":
            what, remedy = value
            raise BundleError(what, remedy and Remedy[remedy])
        return value

    def interrupt(self) -> None:
        """End the request that runs, if one does, from any thread: it raises BundleError."""
        child = self._child
        if self._asked and child is not None:
            self._interrupted = True
            child.kill()

    def end(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _answered(self, request: bytes) -> tuple[str, Any]:
        child = self._started()
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("a child without pipes")
        with suppress(BrokenPipeError):
            child.stdin.write(request)
            child.stdin.flush()
        answer = child.stdout.readline()
        if answer.endswith(b"\n"):
            kind, value = json.loads(answer)
            return kind, value
        self.end()
        if self._interrupted:
            return "refused", (_STOPPED, None)
        if child.returncode == -signal.SIGPROF:
            return "refused", (_ENDLESS, None)
        why = f"broke off (exit code {child.returncode}), perhaps for want of memory"
        said = f"the bundle's chat template or tokenizer {why}; export the bundle again"
        return "refused", (said, None)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._child = subprocess.Popen(
            python_command("-m", _MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=python_environment(),
            start_new_session=True,
            cwd=folder_of_children(),
        )
        return self._child


PROCESS: Final = TokenizerProcess()
