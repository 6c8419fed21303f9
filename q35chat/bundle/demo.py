"""The demo model: a tiny checkpoint that comes with the package, exported on first use.

Knows where the checkpoint is and where its bundle goes; what a bundle is, the exporter knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from q35chat import __version__
from q35chat.bundle.bundle import is_bundle
from q35chat.errors import BundleError, ExportError, Remedy
from q35chat.files import locked
from q35chat.processes import export_command

_PACKAGE = Path(__file__).parent.parent
_ASSETS = (_PACKAGE / "assets", _PACKAGE.parent / "assets")

Export = Callable[[Path, Path], None]
"""Exports the checkpoint folder (first) into the bundle folder (second). Raises Q35Error."""


def demo_checkpoint() -> Path:
    """The folder of the demo checkpoint: in the installed package, or in its source tree.

    Raises BundleError if this installation has none.
    """
    for assets in _ASSETS:
        if (assets / "demo-model" / "config.json").is_file():
            return assets / "demo-model"
    raise BundleError(
        "this installation has no demo model",
        Remedy.NAME_A_BUNDLE,
        command=export_command(),
    )


def sample_pictures() -> Path | None:
    """The folder of the pictures that come with the program; None where they are missing."""
    folders = (assets / "pictures" for assets in _ASSETS)
    return next((folder for folder in folders if folder.is_dir()), None)


def demo_bundle_path(checkpoint: Path) -> Path:
    """Where the bundle of this very checkpoint and version of q35chat is, or will be."""
    key = _fingerprint(checkpoint)[:12]
    return user_cache_path("q35chat") / f"demo-{__version__}-{key}"


def ensure_demo(export: Export) -> Path:
    """The demo bundle; `export` is called to make it where it is not there yet.

    Safe when several processes start at once: one exports, the others wait for it.
    """
    checkpoint = demo_checkpoint()
    bundle = demo_bundle_path(checkpoint)
    if not is_bundle(bundle):
        with _one_at_a_time(bundle):
            if not is_bundle(bundle):
                export(checkpoint, bundle)
    return bundle


@contextmanager
def _one_at_a_time(bundle: Path) -> Iterator[None]:
    with ExitStack() as held:
        try:
            bundle.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(bundle.with_name(f".{bundle.name}.lock")))
        except OSError as error:
            raise ExportError(
                f"cannot write the demo model to {bundle.parent}: {error.strerror}; "
                "set XDG_CACHE_HOME to a folder that can be written"
            ) from error
        yield


def _fingerprint(checkpoint: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(checkpoint.iterdir()):
        if path.is_file():
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
