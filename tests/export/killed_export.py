"""`python -m tests.export.killed_export SIGNAL MOMENT CHECKPOINT OUT`: an export of 48 slots that
sends itself SIGNAL at MOMENT, or, for SIGNAL 0, waits there for a line on stdin.

A moment is a progress event ("begin text"), or "before rename N" of the final renames, or
"while removing" the old bundle.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from q35export.pipeline import export
from tests.export.bundles import request_for
from tests.export.recorder import Recorder


class Killer(Recorder):
    def __init__(self, signal: int, moment: str) -> None:
        super().__init__()
        self._signal = signal
        self._moment = moment
        self._renames = 0

    def reach(self, moment: str) -> None:
        if moment != self._moment:
            return
        self._moment = ""
        if self._signal:
            os.kill(os.getpid(), self._signal)
        else:
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
            sys.stdin.readline()

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
            self.reach("while removing")
            rmtree(path, *arguments, **options)

        Path.rename = renamed  # type: ignore[method-assign, assignment]
        shutil.rmtree = removed  # type: ignore[assignment]


def main(signal: str, moment: str, checkpoint: str, out: str) -> None:
    killer = Killer(int(signal), moment)
    killer.watch_the_exchange()
    export(request_for(checkpoint, Path(out), precision="fp32", max_seq_len=48, force=True), killer)


if __name__ == "__main__":
    main(*sys.argv[1:])
