"""`python -m q35chat.commands.export_worker REQUEST`: an export in a process of its own.

REQUEST is a JSON object; JSON lines on stdout tell how it goes and how it ended. When stdin
ends the work is stopped and cleaned up: so it is cancelled, and so it ends with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, TextIO

from q35chat.commands.hub_watch import HubWatch
from q35chat.errors import Q35Error
from q35chat.user_input import typed_path

if TYPE_CHECKING:
    from q35export.request import ExportRequest

DOWNLOAD: Final = "download"
_EVERY_S: Final = 0.1


class Lines:
    """JSON objects, a line each; for any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, kind: str, value: object) -> None:
        """Write one."""
        with self._lock:
            self._stream.write(json.dumps({kind: value}) + "\n")
            self._stream.flush()


class Telling:
    """The exporter's reporter: tells of each phase at most ten times a second."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._done: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._last = 0.0
        self.watch: HubWatch | None = None

    def note(self, text: str) -> None:
        """Remarks are for the command line."""

    def begin(self, component: str, total: int) -> None:
        """A component starts; what was fetched before is complete."""
        if self.watch is not None:
            self.watch.end()
        self._totals[component], self._done[component] = total, 0
        self._say(component)

    def advance(self, component: str, count: int) -> None:
        """A component grew."""
        self._done[component] += count
        if time.monotonic() - self._last > _EVERY_S:
            self._say(component)

    def end(self, component: str) -> None:
        """A component is complete."""
        self._done[component] = self._totals[component]
        self._say(component, ended=True)

    def download(self, done: int, total: int) -> None:
        """Weights are being fetched."""
        self._lines.say("phase", [DOWNLOAD, done, total, False])

    def _say(self, component: str, *, ended: bool = False) -> None:
        self._last = time.monotonic()
        done, total = self._done[component], self._totals[component]
        self._lines.say("phase", [component, done, total, ended])


def main(asked: str) -> int:
    """Do what the JSON text asks; the exit code."""
    lines = Lines(_own_stdout())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        _work(json.loads(asked), lines)
    except Q35Error as error:
        lines.say("failed", [type(error).__name__, str(error)])
        return 1
    except MemoryError:
        lines.say("failed", ["ExportError", "there is not enough memory for this export"])
        return 1
    except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
        traceback.print_exc()
        lines.say("failed", ["ExportError", f"unexpected {type(error).__name__}: {error}"])
        return 1
    return 0


def _work(asked: dict[str, Any], lines: Lines) -> None:
    from q35export.request import ExportRequest  # noqa: PLC0415

    dry_run = asked.pop("dry_run")
    request = ExportRequest(**asked | {"out": typed_path(asked["out"]).absolute()})
    if dry_run:
        from q35chat.commands.export_estimate import estimate  # noqa: PLC0415

        lines.say("estimate", estimate(request))
    else:
        lines.say("made", _export(request, lines))


def _export(request: ExportRequest, lines: Lines) -> dict[str, Any]:
    from q35chat.bundle.bundle import Bundle  # noqa: PLC0415
    from q35chat.commands.next_command import left_to_convert  # noqa: PLC0415
    from q35export.pipeline import export  # noqa: PLC0415

    telling = Telling(lines)
    if request.source == "huggingface" and not typed_path(request.model).exists():
        telling.watch = HubWatch(request.model, request.revision, telling.download)
        with telling.watch:
            result = export(request, telling)
    else:
        result = export(request, telling)
    manifest = Bundle.open(result.out).manifest
    return {
        "model": manifest.source.name,
        "folder": str(result.out),
        "size": result.plan.total if result.plan else 0,
        "ready": not left_to_convert(manifest),
    }


def _own_stdout() -> TextIO:
    """The pipe to the parent; what libraries print goes to stderr instead."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
