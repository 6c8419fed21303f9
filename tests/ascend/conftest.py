from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from q35chat.ascend.native_log import NativeLog, native_log
from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.commands.model import graph_opener
from q35chat.user_input import Speculate
from q35export.ascend.graphs import AscendOptions
from tests.ascend.chatting import DEMO, Bundles, OpenChat
from tests.ascend.decoding import GEARS, SHAPE, Open
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.ascend import Exported, open_ascend, write_ascend
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import converted_bundle
from tests.support.lite import LiteGraphs
from tests.support.shared import made_once

Export = Callable[..., Exported]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Graphs of a shape with options, made once; capacity 64 unless it is given."""
    opened: dict[str, Exported] = {}

    def export(shape: str, **options: Any) -> Exported:
        settings = AscendOptions(**{"capacity": 64, "image_gears": (4, 16), **options})

        def make(folder: Path) -> None:
            write_ascend(make_checkpoint(folder / "checkpoint", shape, seed=5), folder, settings)

        key = f"ascend {shape} {settings}"
        if key not in opened:
            folder = made_once(tmp_path_factory, key, make)
            opened[key] = open_ascend(folder / "checkpoint", folder, settings)
        return opened[key]

    return export


@pytest.fixture
def graphs(exported: Export, tmp_path: Path, npu: Npu) -> Iterator[Open]:
    """Graphs of the shared shape, converted for the stand-in."""
    count, log = 0, NativeLog(tmp_path / "native.log")

    def open_graphs(options: dict[str, Any] | None = None, **arguments: Any) -> LiteGraphs:
        nonlocal count
        count += 1
        made = exported(SHAPE, **{**GEARS, **(options or {})})
        folder = made.graphs["decode"].path.parent.parent
        return LiteGraphs(folder, tmp_path / str(count), log=log, **arguments)

    yield open_graphs
    log.remove()


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Exported and converted bundles by name, each made once; one whose name begins with "demo" is
    of the demo model, any other of random weights."""

    def bundle(name: str, **options: object) -> Path:
        settings = {"max_seq_len": 192, "gears": (16, 64, 128), "image_gears": (16, 64), **options}

        def make(folder: Path) -> None:
            demo = name.startswith("demo")
            model = DEMO if demo else make_checkpoint(folder / "model", seed=5)
            converted_bundle(model, folder / "out", **settings)

        return made_once(tmp_path_factory, f"converted {name}", make) / "out"

    return bundle


@pytest.fixture
def open_chat(
    bundles: Bundles, npu: Npu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenChat]:
    """Opens the bundle of a name, or the one in a folder, on the stand-in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def open_it(
        name: str = "random",
        npu: NpuOptions = DEFAULT_NPU,
        speculate: Speculate = "auto",
        **options: object,
    ) -> ChatEngine:
        bundle = Bundle.open(bundles(name, **options))
        runtime = graph_opener(bundle, None, npu)
        return ChatEngine.open(bundle, runtime, device="NPU 0", speculate=speculate)

    yield open_it
    native_log(tmp_path / "any").remove()
