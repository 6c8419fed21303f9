"""The application's `Exporter`: each export is a process of its own, so that nothing on screen
waits for it and stopping it is certain.

Knows the worker's lines; the screen does not. Imported for the first paint: what only an export
needs is imported when there is one.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from q35chat import errors
from q35chat.errors import ExportError, Q35Error
from q35chat.processes import python_command, python_environment
from q35chat.text import safe_line

if TYPE_CHECKING:
    from q35chat.tui.exporting import BundleWish, Estimate, FoundBundle, MadeBundle, TellPhase

WORKER: Final = tuple(python_command("-m", "q35chat.commands.export_worker"))
_FP16: Final = "fp16"
_REPLACEABLE: Final = (errors.OccupiedError, errors.BundleError)


class ChildExporter:
    """Makes jobs that run `worker`."""

    def __init__(self, worker: Sequence[str] = WORKER) -> None:
        self._worker = tuple(worker)

    def job(self) -> ChildJob:
        """Something to do once."""
        return ChildJob(self._worker)

    def room(self, folder: Path) -> int:
        """Free bytes where `folder` is or would be; 0 when nobody can tell."""
        place = folder.absolute()
        try:
            there = next(path for path in (place, *place.parents) if path.is_dir())
            return shutil.disk_usage(there).free
        except (OSError, StopIteration):
            return 0

    def standing(self, folder: Path) -> FoundBundle | None:
        """The bundle in `folder`; None where there is none that can be read."""
        from q35chat.bundle.bundle import Bundle
        from q35chat.tui.exporting import FoundBundle

        try:
            manifest = Bundle.open(folder, check="names").manifest
        except Q35Error:
            return None
        return FoundBundle(
            manifest.source.name, manifest.precision, manifest.capacity, manifest.kept
        )

    def bundle(self, name: str) -> MadeBundle | None:
        """The bundle that is in a folder, or has a name; None where there is none."""
        from q35chat.bundle.bundle import Bundle
        from q35chat.bundle.library import folder_of
        from q35chat.commands import next_command
        from q35chat.user_input import typed_path

        folder = folder_of(typed_path(name))
        try:
            manifest = Bundle.open(folder, check="names").manifest
        except Q35Error:
            return None
        return _made(manifest.source.name, folder, ready=not next_command.left_to_convert(manifest))


class ChildJob:
    """One child. It stops and cleans up when its stdin ends."""

    def __init__(self, worker: Sequence[str]) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._stopped = False

    def estimate(self, wish: BundleWish) -> Estimate:
        """What the model would take. Raises Q35Error, Stopped after `cancel`."""
        from q35chat.tui.exporting import Cost, Estimate

        answer = self._run(wish, dry_run=True)
        costs = tuple(
            Cost(**cost | {"parts": tuple((name, size) for name, size in cost["parts"])})
            for cost in answer["costs"]
        )
        return Estimate(costs, answer["longest"], answer["memory_free"])

    def export(self, wish: BundleWish, tell: TellPhase) -> MadeBundle:
        """Make the bundle. Raises Q35Error, Stopped after `cancel`, Occupied."""
        answer = self._run(wish, tell)
        return _made(answer["model"], Path(answer["folder"]), answer["size"], ready=answer["ready"])

    def cancel(self) -> None:
        """Stop it, also before it starts; returns at once, from any thread."""
        with self._lock:
            self._stopped = True
            if self._child is not None and self._child.stdin is not None:
                self._child.stdin.close()

    def _run(
        self, wish: BundleWish, tell: TellPhase | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """The value of the line that ends the work."""
        from q35chat.tui.exporting import Phase, Stopped

        with self._start(_request(wish, dry_run=dry_run)) as child:
            whole = (line for line in child.stdout or () if line.endswith("\n"))
            for kind, value in (pair for line in whole for pair in json.loads(line).items()):
                if kind == "phase" and tell is not None:
                    tell(Phase(*value))
                elif kind == "failed":
                    name, message = value
                    typed = message.replace(str(wish.folder.absolute()), str(wish.folder))
                    raise _error(name, typed)
                elif kind in {"estimate", "made"}:
                    answer: dict[str, Any] = value
                    return answer
        if self._stopped:
            raise Stopped("stopped")
        code = child.returncode
        why = "was killed, perhaps for want of memory" if code == -signal.SIGKILL else "broke off"
        raise ExportError(f"the export {why} (exit code {code}); the folder is as it was")

    def _start(self, request: dict[str, Any]) -> subprocess.Popen[str]:
        from q35chat.tui.exporting import Stopped

        with self._lock:
            if self._stopped:
                raise Stopped("stopped")
            self._child = subprocess.Popen(
                [*self._worker, json.dumps(request)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env=python_environment(),
                start_new_session=True,
            )
            return self._child


def _made(model: str, folder: Path, size: int = 0, *, ready: bool) -> MadeBundle:
    from q35chat.commands import next_command
    from q35chat.tui.exporting import MadeBundle

    typed = next_command.as_typed_here(folder)
    command = (next_command.chat_command if ready else next_command.convert_command)(typed)
    return MadeBundle(model, folder, size, command, ready)


def _request(wish: BundleWish, *, dry_run: bool) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": wish.model,
        "out": str(wish.folder),
        "source": wish.hub,
        "max_seq_len": wish.capacity,
        "force": wish.replace,
        "dry_run": dry_run,
    }
    if wish.precision != _FP16:
        request["precision"] = wish.precision
    return request


def _error(kind: str, message: str) -> Q35Error:
    """The failure that the worker names; a bundle in the way, other or damaged, is `Occupied`."""
    from q35chat.tui.exporting import Occupied

    found: type[Q35Error] = getattr(errors, kind, ExportError)
    if issubclass(found, _REPLACEABLE):
        found = Occupied
    return found(safe_line(message, limit=1000))
