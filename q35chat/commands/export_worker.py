"""`python -m q35chat.commands.export_worker REQUEST`: an export, or the estimate of one, in a
process of its own.

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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from q35chat.commands.wording import FORM
from q35chat.errors import Q35Error, speak
from q35chat.user_input import typed_path

if TYPE_CHECKING:
    from q35export.request import ExportRequest
    from q35export.write import Ingredients

DOWNLOAD: Final = "download"
_EVERY_S: Final = 0.1
_LOOK_EVERY_S: Final = 0.25
_UNFINISHED: Final = ".incomplete"


class WorkerReporter:
    """The exporter's reporter: writes JSON objects, a line each, from any thread.

    A line for each phase at most ten times a second. `fetched` is set once no weights are fetched
    any more.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._last = 0.0
        self.fetched = threading.Event()

    def say(self, kind: str, value: object) -> None:
        """Write one line."""
        with self._lock:
            self._stream.write(json.dumps({kind: value}) + "\n")
            self._stream.flush()

    def note(self, text: str) -> None:
        """Remarks are for the command line."""

    def begin(self, component: str, total: int) -> None:
        """A component starts; what was fetched before is complete."""
        self.fetched.set()
        self._totals[component], self._done[component] = total, 0
        self.phase(component)

    def advance(self, component: str, count: int) -> None:
        """A component grew."""
        self._done[component] += count
        if time.monotonic() - self._last > _EVERY_S:
            self.phase(component)

    def end(self, component: str) -> None:
        """A component is complete."""
        self._done[component] = self._totals[component]
        self.phase(component, ended=True)

    def phase(self, component: str, *, ended: bool = False) -> None:
        """Write how far a component is."""
        self._last = time.monotonic()
        self.say("phase", [component, self._done[component], self._totals[component], ended])


def main(asked: str) -> int:
    """Do what the JSON text asks; the exit code."""
    speak(FORM)
    reporter = WorkerReporter(_own_stdout())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        _work(json.loads(asked), reporter)
    except Q35Error as error:
        reporter.say("failed", [type(error).__name__, str(error)])
        return 1
    except MemoryError:
        reporter.say("failed", ["ExportError", "there is not enough memory for this export"])
        return 1
    except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
        traceback.print_exc()
        reporter.say("failed", ["ExportError", f"unexpected {type(error).__name__}: {error}"])
        return 1
    return 0


def _work(asked: dict[str, Any], reporter: WorkerReporter) -> None:
    from q35export.request import ExportRequest

    dry_run = asked.pop("dry_run")
    request = ExportRequest(**asked | {"out": typed_path(asked["out"]).absolute()})
    if dry_run:
        reporter.say("estimate", estimate(request))
    else:
        reporter.say("made", _export(request, reporter))


def _export(request: ExportRequest, reporter: WorkerReporter) -> dict[str, Any]:
    from q35chat.bundle.bundle import Bundle
    from q35chat.commands.next_command import left_to_convert
    from q35export.pipeline import export

    def tell(done: int, total: int) -> None:
        reporter.say("phase", [DOWNLOAD, done, total, False])

    if request.source == "huggingface" and not typed_path(request.model).exists():
        download = (request.model, request.revision, tell, reporter.fetched)
        threading.Thread(target=watch_download, args=download, daemon=True).start()
    try:
        result = export(request, reporter)
    finally:
        reporter.fetched.set()
    manifest = Bundle.open(result.out).manifest
    return {
        "model": manifest.source.name,
        "folder": str(result.out),
        "size": result.plan.total if result.plan else 0,
        "ready": not left_to_convert(manifest),
    }


def estimate(request: ExportRequest) -> dict[str, Any]:
    """What a model takes at each precision, by its small files alone: no weights are fetched.

    A JSON object; sizes in bytes. Raises Q35Error, also for a bad `out`.
    """
    import psutil

    from q35export.components import builders_for
    from q35export.output_state import Foreign, inspect
    from q35export.pipeline import gather
    from q35export.request import default_target
    from q35export.source import resolve

    state = inspect(request.out)
    if isinstance(state, Foreign):
        raise state.error
    request = replace(request, target=request.target or default_target())
    local = resolve(request, lambda _: None, weights=False)
    [(_, first), *_] = _offers(request)
    made_of = gather(request, local, builders_for(first), lambda _: None)
    return {
        "longest": made_of.config.text.max_positions,
        "memory_free": psutil.virtual_memory().available,
        "costs": [_cost(name, offer, made_of) for name, offer in _offers(made_of.request)],
    }


def _offers(request: ExportRequest) -> list[tuple[str, ExportRequest]]:
    """The precisions that the target has, smallest first; an NPU's usual one before that in int8,
    which nobody has run on one."""
    from q35export.request import DTYPES, PRESETS, W8A8

    if request.target != "cpu":
        usual = (DTYPES[0], replace(request, precision=None))
        return [usual, (W8A8, replace(request, precision=W8A8))]
    return [(name, replace(request, precision=name)) for name in reversed(PRESETS)]


def _cost(name: str, request: ExportRequest, made_of: Ingredients) -> dict[str, Any]:
    from q35export.components import builders_for
    from q35export.plan import PROGRAM_BYTES, make_plan

    config = made_of.config
    request = replace(request, max_seq_len=min(request.max_seq_len, config.text.max_positions))
    plan = make_plan(request, config, builders_for(request), made_of.processor, keep=None)
    memory = plan.memory
    return {
        "precision": name,
        "disk": plan.total,
        "memory": PROGRAM_BYTES + memory.weights + memory.states,
        "slot": memory.kv_cache // request.max_seq_len,
        "parts": [
            [part, sum(file.size for file in plan.files if file.path.startswith(f"{part}/"))]
            for part in request.components
        ],
    }


def watch_download(
    model: str, revision: str | None, tell: Callable[[int, int], None], over: threading.Event
) -> None:
    """Follow a download of weights by the hub's cache, which the library fills, until `over`.

    Calls `tell` with (fetched, total) bytes, total 0 where unknown; not at all where everything is
    in the cache.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    blobs = Path(HF_HUB_CACHE, f"models--{model.replace('/', '--')}", "blobs")
    before = _stored(blobs, unfinished=False)
    total = _to_fetch(model, revision)
    while total != 0 and not over.is_set():
        done = _stored(blobs, unfinished=True) - before
        tell(min(done, total) if total else done, total or 0)
        over.wait(_LOOK_EVERY_S)


def _to_fetch(model: str, revision: str | None) -> int | None:
    """Bytes of weights that are not in the cache; None where the hub does not say."""
    from huggingface_hub import snapshot_download

    try:
        files = snapshot_download(
            model,
            revision=revision,
            allow_patterns=["*.safetensors"],
            ignore_patterns=["*/*"],
            dry_run=True,
        )
        return sum(file.file_size or 0 for file in files if file.will_download)
    except Exception:  # noqa: BLE001 - the download itself says what is wrong
        return None


def _stored(folder: Path, *, unfinished: bool) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(
                entry.stat().st_size
                for entry in entries
                if unfinished or not entry.name.endswith(_UNFINISHED)
            )
    except OSError:
        return 0


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
