"""The arrows of the house: who may import whom, read from the sources. Imports inside functions and
for types count, too."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.imports import ROOT, Import, imports, imports_of, modules

# What each part may import of the project beside itself and the leaves, which everybody may use.
LEAVES = (
    "q35chat.errors",
    "q35chat.file_kinds",
    "q35chat.files",
    "q35chat.json_reader",
    "q35chat.processes",
    "q35chat.text",
    "q35chat.user_input",
    "q35chat.__version__",
)
ARROWS: dict[str, tuple[str, ...]] = {
    "q35chat.errors": (),
    "q35chat.file_kinds": (),
    "q35chat.files": (),
    "q35chat.json_reader": (),
    "q35chat.processes": (),
    "q35chat.text": (),
    "q35chat.user_input": (),
    "q35chat.bundle": (),
    "q35chat.settings": (),
    "q35chat.vision": (),
    "q35chat.engine": (),
    "q35chat.states": (),
    "q35chat.bench": ("q35chat.engine",),
    "q35chat.runtimes": ("q35chat.engine", "q35chat.ascend", "q35chat.bundle"),
    "q35chat.ascend": ("q35chat.engine", "q35chat.bundle"),
    "q35chat.ascend.diagnosis": ("q35chat.ascend", "q35chat.diagnosis"),
    "q35chat.chat": (
        "q35chat.engine",
        "q35chat.vision",
        "q35chat.states",
        "q35chat.bundle.bundle",
    ),
    "q35chat.endpoint": ("q35chat.chat", "q35chat.vision"),
    "q35chat.store": ("q35chat.chat", "q35chat.states"),
    "q35chat.tui": ("q35chat.chat", "q35chat.settings"),
    "q35chat.server": ("q35chat.chat",),
    "q35chat.diagnosis": ("q35chat.bundle", "q35chat.runtimes"),
    "q35chat.cli": ("q35chat",),
    "q35chat.commands": ("q35chat", "q35export"),
    "q35chat.__main__": ("q35chat.cli",),
    "q35export": ("q35chat.bundle",),
    "q35export.calibration": ("q35chat.chat.prompt.tokenizer", "q35chat.vision", "q35export"),
    "q35export.processor": ("q35chat", "q35export"),
    "q35export.ascend.reference": ("q35chat.vision", "q35export"),
    "q35export.verify": ("q35chat", "q35export"),
}

# Libraries that only the named parts may import.
OWNERS: dict[str, tuple[str, ...]] = {
    "torch": ("q35export.verify",),
    "textual": ("q35chat.tui",),
    "starlette": ("q35chat.server",),
    "tomlkit": ("q35chat.settings",),
    "llguidance": ("q35chat.chat.turn.grammar",),
    "prometheus_client": ("q35chat.server",),
    "uvicorn": ("q35chat.commands.serve",),
    "onnxruntime": (
        "q35chat.runtimes.onnxruntime",
        "q35export.ascend.reference",
        "q35export.calibration.layers",
    ),
    "mindspore_lite": ("q35chat.ascend.mindspore_lite",),
    "typer": ("q35chat.cli", "q35chat.commands"),
    "sqlite3": ("q35chat.store",),
    "httpx2": ("q35chat.endpoint.network",),
    "keyring": ("q35chat.endpoint.choice",),
    "onnx_ir": ("q35export",),
    "pypdf": ("q35chat.chat.pdf_child",),
    "transformers": (
        "q35chat.chat",
        "q35chat.vision",
        "q35export.calibration.frequent",
        "q35export.processor",
        "q35export.verify",
    ),
}

MOST_LINES = 600
IMPORTS = {
    name: imports(name, file)
    for package in ("q35chat", "q35export")
    for name, file in modules(package)
}


def inside(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def part_of(module: str) -> str | None:
    """The narrowest part that has arrows of its own."""
    return max((part for part in ARROWS if inside(module, part)), key=len, default=None)


def broken_arrows(module: str, found: Iterable[Import]) -> list[str]:
    """Imports within the project that no arrow allows."""
    part = part_of(module)
    allowed = (*LEAVES, *ARROWS[part], part) if part else ()
    return [
        f"{module} -> {item.module}"
        for item in found
        if item.module.startswith(("q35chat", "q35export"))
        and not any(inside(item.module, name) for name in allowed)
    ]


def borrowed_libraries(module: str, found: Iterable[Import]) -> list[str]:
    """Libraries that belong to another part."""
    return [
        f"{module} -> {item.module}"
        for item in found
        for library, owners in OWNERS.items()
        if inside(item.module, library) and not any(inside(module, owner) for owner in owners)
    ]


def test_arrows_point_one_way() -> None:
    assert [arrow for each in IMPORTS.items() for arrow in broken_arrows(*each)] == []


def test_every_arrow_is_there() -> None:
    used = {(part_of(module), item.module) for module, found in IMPORTS.items() for item in found}
    loose = [
        f"{part} -> {target}"
        for part, targets in ARROWS.items()
        for target in targets
        if not any(one == part and inside(module, target) for one, module in used)
    ]
    assert loose == []


def test_a_library_stays_with_its_owner() -> None:
    assert [arrow for each in IMPORTS.items() for arrow in borrowed_libraries(*each)] == []


def test_every_part_of_the_project_has_its_arrows_written_down() -> None:
    assert {module for module in IMPORTS if part_of(module) is None} <= {"q35chat"}
    assert [part for part in ARROWS if not any(inside(module, part) for module in IMPORTS)] == []


def test_torch_is_imported_only_when_a_comparison_runs() -> None:
    eager = {
        f"{module} -> {item.module}"
        for module, found in IMPORTS.items()
        for item in found
        if inside(item.module, "torch") and not (item.lazy or item.typing)
    }
    assert eager == set()


def test_no_file_is_too_long_to_hold_one_story() -> None:
    files = [file for folder in ("q35chat", "export") for file in (ROOT / folder).rglob("*.py")]
    lengths = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("q35chat.engine.decoder", "import q35chat.runtimes.onnxruntime", True),
        ("q35chat.engine.decoder", "from q35chat import chat", True),
        ("q35chat.engine.decoder", "from ..chat import values", True),
        ("q35chat.engine.decoder", "from .states import States", False),
        ("q35chat.chat.turn.generate", "def go():\n    from q35chat.tui import app", True),
        ("q35chat.chat.engine", "if TYPE_CHECKING:\n    from q35chat.tui import app", True),
        ("q35chat.cli", "from q35chat.tui import app", False),
        ("q35export.pipeline", "from q35chat.engine import decoder", True),
    ],
)
def test_a_wrong_arrow_is_seen_wherever_it_hides(name: str, source: str, wrong: bool) -> None:
    assert bool(broken_arrows(name, imports_of(source, name.rpartition(".")[0]))) is wrong
