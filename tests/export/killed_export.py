"""An export of 48 slots in a process of its own, that at a moment sends itself a signal or waits.

A moment is a progress event ("begin text"), or "before rename N" of the final renames on a system
that cannot exchange two names in one step, or "while removing" the old bundle. The processes are
forks of one that has imported all of this.
"""

from __future__ import annotations

import os
import shutil
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from q35export import staging
from q35export.pipeline import export
from tests.export.bundles import request_for
from tests.export.recorder import Recorder

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class Killer(Recorder):
    def __init__(self, signal: int | Connection[str, str], moment: str) -> None:
        super().__init__()
        self._signal = signal
        self._moment = moment
        self._renames = 0

    def reach(self, moment: str) -> None:
        if moment != self._moment:
            return
        self._moment = ""
        if isinstance(self._signal, Connection):
            self._signal.send("waiting")
            self._signal.recv()
        else:
            os.kill(os.getpid(), self._signal)

    def begin(self, component: str, total: int) -> None:
        super().begin(component, total)
        self.reach(f"begin {component}")

    def advance(self, component: str, count: int) -> None:
        super().advance(component, count)
        if self.written[component] > self.totals[component] // 3:
            self.reach(f"inside {component}")

    def end(self, component: str) -> None:
        super().end(component)
        self.reach(f"end {component}")

    def watch_the_exchange(self) -> None:
        rename, rmtree = Path.rename, shutil.rmtree

        def renamed(path: Path, target: Path) -> Path:
            self._renames += 1
            self.reach(f"before rename {self._renames}")
            return rename(path, target)

        def removed(path: Path, *arguments: Any, **options: Any) -> None:
            if ".q35-" in Path(path).name:  # not a folder of temporary files
                self.reach("while removing")
            rmtree(path, *arguments, **options)

        if "rename" in self._moment:
            vars(staging)["exchange"] = lambda *_: False
        Path.rename = renamed  # type: ignore[method-assign, assignment]
        shutil.rmtree = removed  # type: ignore[assignment]


def run(signal: int | Connection[str, str], moment: str, checkpoint: Path, out: Path) -> None:
    killer = Killer(signal, moment)
    killer.watch_the_exchange()
    export(request_for(checkpoint, out, precision="fp32", max_seq_len=48, force=True), killer)


def start(
    signal: int | Connection[str, str], moment: str, checkpoint: Path, out: Path
) -> ForkServerProcess:
    process = FORKS.Process(target=run, args=(signal, moment, checkpoint, out))
    process.start()
    return process
