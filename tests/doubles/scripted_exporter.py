"""An `Exporter` without models: says what its script has, and waits where a test looks.

A test that must see an export half-way closes the gate and lets phases through one by one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from q35chat.tui.exporting import (
    BundleWish,
    Cost,
    Estimate,
    FoundBundle,
    MadeBundle,
    Phase,
    Stopped,
    TellPhase,
)
from tests.doubles.scripted_backend import PATIENCE_S

MIB = 1 << 20
GIB = 1 << 30
PHASES = (("vision", 100 * MIB), ("text", 500 * MIB))
ESTIMATE = Estimate(
    costs=(
        Cost("int4", 600 * MIB, 700 * MIB, 24_576, PHASES),
        Cost("int4-exact", 660 * MIB, 760 * MIB, 24_576, (PHASES[0], ("text", 560 * MIB))),
        Cost("int8", 1000 * MIB, 1100 * MIB, 24_576, (PHASES[0], ("text", 900 * MIB))),
        Cost("fp32", 3400 * MIB, 3500 * MIB, 24_576, (PHASES[0], ("text", 3300 * MIB))),
    ),
    longest=262_144,
    memory_free=8 * GIB,
)


@dataclass
class ScriptedExporter:
    """Every job does the same. `errors` are raised one by one, by look or by export."""

    estimate: Estimate = ESTIMATE
    phases: tuple[Phase, ...] = ()
    errors: list[Exception] = field(default_factory=list)
    free: int = 40 * GIB
    there: FoundBundle | None = None
    bundles: dict[str, MadeBundle] = field(default_factory=dict)
    gate: threading.Event | None = None
    wishes: list[BundleWish] = field(default_factory=list)
    jobs: list[ScriptedJob] = field(default_factory=list)

    def job(self) -> ScriptedJob:
        """Another job."""
        self.jobs.append(ScriptedJob(self))
        return self.jobs[-1]

    def room(self, folder: Path) -> int:
        """The same everywhere."""
        return self.free

    def standing(self, folder: Path) -> FoundBundle | None:
        """The same everywhere."""
        return self.there

    def bundle(self, name: str) -> MadeBundle | None:
        """Those of the script."""
        return self.bundles.get(name)


class ScriptedJob:
    """Waits at the gate before it ends."""

    def __init__(self, script: ScriptedExporter) -> None:
        self._script = script
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._cancelled.is_set()

    def estimate(self, wish: BundleWish) -> Estimate:
        """The script's."""
        self._go(wish)
        return self._script.estimate

    def export(self, wish: BundleWish, tell: TellPhase) -> MadeBundle:
        """Tell all phases, then end."""
        for phase in self._script.phases:
            tell(phase)
        self._go(wish)
        size = sum(total for _, total in PHASES)
        return MadeBundle(wish.model, wish.folder, size, f"q35chat --model-dir {wish.folder}")

    def cancel(self) -> None:
        """Stop."""
        self._cancelled.set()
        if self._script.gate is not None:
            self._script.gate.set()

    def _go(self, wish: BundleWish) -> None:
        self._script.wishes.append(wish)
        if self._script.gate is not None:
            assert self._script.gate.wait(PATIENCE_S), "nobody opened the gate"
        if self.cancelled:
            raise Stopped("stopped")
        if self._script.errors:
            raise self._script.errors.pop(0)
