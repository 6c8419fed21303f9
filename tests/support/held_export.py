"""`python -m tests.support.held_export REQUEST`: the application's export worker, held in the
middle of its last graph until it is stopped."""

from __future__ import annotations

import sys
import threading

from q35chat.commands import export_worker


class Held(export_worker.WorkerReporter):
    def advance(self, component: str, count: int) -> None:
        super().advance(component, count)
        if component == "text":
            self.phase(component)
            threading.Event().wait()


if __name__ == "__main__":
    export_worker.WorkerReporter = Held  # type: ignore[misc]
    sys.exit(export_worker.main(sys.argv[1]))
