"""No import circles: what a module knows, types counted, never leads back to it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from tests.support.imports import imports, modules


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, each importing the next; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_module_imports_in_a_circle() -> None:
    files = {**dict(modules("q35chat")), **dict(modules("q35export"))}

    def known(name: str) -> str:
        """The module that an imported name is or lies in; empty outside the project."""
        while name and name not in files:
            name = name.rpartition(".")[0]
        return name

    graph = {
        module: {known(item.module) for item in imports(module, file)} - {module, ""}
        for module, file in files.items()
    }
    assert circle(graph) == []


def test_a_circle_is_found_and_named() -> None:
    found = circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert found[0] == found[-1]
    assert "".join(found[:-1]) in {"abc", "bca", "cab"}
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
