"""The manifest of a bundle that stands, replaced in one step.

The new one is written beside the old one first; `is_leftover` knows what a killed run left of that.
Must not know what is recorded.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from q35chat.bundle.bundle import MANIFEST_NAME, Manifest

_PREFIX = f".{MANIFEST_NAME}"
_LEFTOVER = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")


def replace_manifest(bundle: Path, manifest: Manifest) -> None:
    """Put `manifest` into the folder `bundle`. Raises OSError; the old one then stays, alone."""
    descriptor, name = tempfile.mkstemp(dir=bundle, prefix=_PREFIX)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
        written.chmod(0o644)
        written.replace(bundle / MANIFEST_NAME)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def is_leftover(name: str) -> bool:
    """Whether a file of this name in a bundle is a manifest that never took its place."""
    return _LEFTOVER.fullmatch(name) is not None


def clear_leftovers(bundle: Path) -> None:
    """Delete manifests that never took their place; nobody may be writing one."""
    for path in bundle.iterdir():
        if is_leftover(path.name):
            path.unlink()
