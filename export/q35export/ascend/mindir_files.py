"""The files of a converted graph in its folder: `NAME.mindir`, or, above a size,
`NAME_graph.mindir` with `NAME_variables/`.

Knows nothing of manifests and converters.
"""

from __future__ import annotations

import shutil
from pathlib import Path


def converted_graph(folder: Path, name: str) -> Path | None:
    """The graph file of a whole result in `folder`; None where there is none."""
    split, variables = folder / f"{name}_graph.mindir", folder / f"{name}_variables"
    if split.is_file() and variables.is_dir() and any(variables.iterdir()):
        return split
    whole = folder / f"{name}.mindir"
    return whole if whole.is_file() else None


def converted_files(folder: Path, name: str) -> tuple[Path, ...]:
    """All files of the whole result in `folder`, the graph first; empty where there is none."""
    graph = converted_graph(folder, name)
    if graph is None:
        return ()
    weights = folder / f"{name}_variables"
    return (graph, *(sorted(weights.iterdir()) if graph.stem.endswith("_graph") else ()))


def take_result(staging: Path, folder: Path, name: str) -> None:
    """Move the whole result in `staging` to `folder`, in place of what was left there of others.

    Stopped at any moment, `folder` holds the whole new result or none: the graph files go first
    and come last.
    """
    graph = converted_graph(staging, name)
    for stale in (f"{name}_graph.mindir", f"{name}.mindir", f"{name}_variables"):
        _remove(folder / stale)
    for made in sorted(staging.iterdir(), key=lambda path: path == graph):
        place = folder / made.name
        _remove(place)
        made.replace(place)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
