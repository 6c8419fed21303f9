"""Which bundle a command uses: its option, the settings, `out/`, and last the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.bundle.demo import demo_checkpoint, ensure_demo
from q35chat.commands.npu import DEFAULT_NPU, NpuOptions
from q35chat.commands.options import DEFAULT_SNAPSHOT_MIB
from q35chat.errors import BundleError
from q35chat.processes import DEFAULT_OUT as OUT
from q35chat.processes import export_command
from q35chat.settings import Settings
from q35chat.user_input import Speculate, typed_path

DEFAULT_OUT = Path(OUT)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A bundle's folder, whether it is the demo, how an NPU would run it, how much host memory
    (MiB) snapshots of earlier turns may take, and whether tokens are guessed ahead."""

    path: Path
    is_demo: bool = False
    npu: NpuOptions = DEFAULT_NPU
    snapshot_mib: int = DEFAULT_SNAPSHOT_MIB
    speculate: Speculate = "auto"


def choose_model(option: Path | None, settings: Settings, demo: Callable[[], Path]) -> ModelChoice:
    """The bundle to use. `demo` makes the demo's; it is called only when nothing else is there.

    A folder that the user named is taken as it is: whoever opens it says what is wrong with it.
    """
    if option is not None:
        return ModelChoice(option)
    if settings.model_dir:
        return ModelChoice(typed_path(settings.model_dir))
    if is_bundle(DEFAULT_OUT):
        return ModelChoice(DEFAULT_OUT)
    return ModelChoice(demo(), is_demo=True)


def make_demo(note: Callable[[str], None]) -> Path:
    """The demo's bundle, made if needed; `note` gets a line for each thing a user must know.

    Raises BundleError, ExportError.
    """

    def export(checkpoint: Path, out: Path) -> None:
        from q35export.pipeline import ExportRequest  # noqa: PLC0415
        from q35export.pipeline import export as run_export  # noqa: PLC0415

        request = ExportRequest(
            model=str(checkpoint), out=out, target="cpu", precision="fp32", force=is_bundle(out)
        )
        run_export(request, _Quiet())

    def prepare(checkpoint: Path, out: Path) -> None:
        note("preparing the demo model (once)")
        export(checkpoint, out)

    path = ensure_demo(prepare)
    if _is_damaged(path):
        note("the demo model is damaged and made again")
        export(demo_checkpoint(), path)
    note(f"this is the tiny demo model; for a real one run {export_command()}")
    return path


def _is_damaged(path: Path) -> bool:
    try:
        Bundle.open(path, check="small")
    except BundleError:
        return is_bundle(path)
    return False


class _Quiet:
    """A reporter for an export too short to be worth a bar."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def begin(self, component: str, total: int) -> None:
        """Say nothing."""

    def advance(self, component: str, count: int) -> None:
        """Say nothing."""

    def end(self, component: str) -> None:
        """Say nothing."""
