"""Which modules a source file imports, read from its syntax tree without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module: `lazy` when it happens inside a function, `typing` for types only."""

    module: str
    lazy: bool = False
    typing: bool = False


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """Dotted names and files of a package's modules, the package itself included."""
    root = ROOT / "export" if package.startswith("q35export") else ROOT
    folder = root / package.replace(".", "/")
    files = [folder.with_suffix(".py")] if not folder.is_dir() else sorted(folder.rglob("*.py"))
    for file in files:
        parts = file.relative_to(root).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def imports(module: str, file: Path) -> set[Import]:
    """Everything that a file imports, relative imports resolved against `module`."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return imports_of(file.read_text(encoding="utf-8"), package)


def imports_of(source: str, package: str) -> set[Import]:
    """Everything that `source`, which lies in `package`, imports."""
    return set(_walk(ast.parse(source), package, lazy=False, typing=False))


def _walk(node: ast.AST, package: str, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for name in _names(child, package):
                yield Import(name, lazy, typing)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(
                child, package, lazy=lazy or inside, typing=typing or _guards_types(child)
            )


def _names(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{module}.{alias.name}" for alias in node.names]


def _guards_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
