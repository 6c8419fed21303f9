"""`python -m tests.campaigns.graphs [--count N] [--seed S]`: bundles with a right manifest and a
wrong graph.

A tensor, a node, a size, a promise or a byte of a small bundle's graph is changed, and the manifest
is written to fit. Then `ask` is asked about a picture. Good is an answer or one line of our own on
stderr, within a time; a traceback, a crash, a second line or anything else on stdout is a finding.

Each runs in a child forked by a server that has loaded the libraries; the tokenizer, which is the
right one, runs in it, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import onnx

from q35chat import cli
from q35chat.bundle.bundle import MANIFEST_NAME, FileEntry, Manifest
from q35chat.chat.prompt.tokenizer_child import TokenizerFiles
from q35chat.chat.prompt.tokenizer_process import PROCESS
from q35chat.text import safe_line
from tests.campaigns.damages import damaged
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import export_bundle
from tests.vision.files import sample

GRAPHS: Final = ("text/model.onnx", "text/model.onnx", "vision/model.onnx")
PATIENCE_S: Final = 60.0
_TOLD: Final = 100
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["onnx", "onnxruntime", "transformers", "q35chat.cli", "q35chat.chat.engine",
     "q35chat.runtimes.onnxruntime", "tests.campaigns.damages", "tests.support.exported"]
)  # fmt: skip
_SIZES: Final = (-1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)
_KINDS: Final = (1, 2, 3, 6, 7, 8, 9, 10, 11, 16)
_WORDS: Final = ("", "x", "past_key_0", "logits", "../../etc/passwd", "\x1b[2J", "é", "1", "-1")

Change = Callable[[onnx.ModelProto, random.Random], object]


def _tensor(model: onnx.ModelProto, chance: random.Random) -> Any:
    return chance.choice([*model.graph.input, *model.graph.output])


def _rename(model: onnx.ModelProto, chance: random.Random) -> None:
    _tensor(model, chance).name = chance.choice(_WORDS)


def _another_type(model: onnx.ModelProto, chance: random.Random) -> None:
    _tensor(model, chance).type.tensor_type.elem_type = chance.choice(_KINDS)


def _another_size(model: onnx.ModelProto, chance: random.Random) -> None:
    axes = _tensor(model, chance).type.tensor_type.shape.dim
    match chance.randrange(4):
        case 0 if axes:
            del axes[chance.randrange(len(axes))]
        case 1 if axes:
            chance.choice(axes).dim_param = chance.choice(_WORDS)
        case 2 if axes:
            chance.choice(axes).dim_value = chance.choice(_SIZES)
        case _:
            axes.add().dim_value = chance.choice(_SIZES)


def _less(model: onnx.ModelProto, chance: random.Random) -> None:
    graph = model.graph
    parts: list[Any] = [graph.node, graph.input, graph.output, graph.initializer]
    listed = chance.choice([part for part in parts if len(part)])
    del listed[chance.randrange(len(listed))]


def _twice(model: onnx.ModelProto, chance: random.Random) -> None:
    graph = model.graph
    parts: list[Any] = [graph.node, graph.input, graph.output, graph.initializer]
    listed = chance.choice([part for part in parts if len(part)])
    listed.add().CopyFrom(chance.choice(listed))


def _another_operator(model: onnx.ModelProto, chance: random.Random) -> None:
    node, other = (chance.choice(model.graph.node) for _ in range(2))
    node.op_type, node.domain = other.op_type, other.domain


def _another_wire(model: onnx.ModelProto, chance: random.Random) -> None:
    node, other = (chance.choice(model.graph.node) for _ in range(2))
    ends: Any = chance.choice([node.input, node.output])
    if ends:
        ends[chance.randrange(len(ends))] = chance.choice([*other.output, *other.input, ""])


def _another_attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    attribute = chance.choice(chance.choice(nodes).attribute)
    attribute.i, attribute.f = chance.choice(_SIZES), chance.choice((0.0, -1.0, 1e38, float("nan")))
    attribute.s = chance.choice(_WORDS).encode()
    if attribute.ints:
        attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(_SIZES)


def _another_weight(model: onnx.ModelProto, chance: random.Random) -> None:
    weight = chance.choice(model.graph.initializer)
    match chance.randrange(3):
        case 0 if weight.dims:
            weight.dims[chance.randrange(len(weight.dims))] = chance.choice(_SIZES)
        case 1 if weight.external_data:
            place = chance.choice(weight.external_data)
            place.value = chance.choice((*_WORDS, *map(str, _SIZES), "/etc/passwd"))
        case _:
            weight.data_type = chance.choice(_KINDS)


def _another_promise(model: onnx.ModelProto, chance: random.Random) -> None:
    listed: Any = model.metadata_props
    entry = chance.choice(listed) if listed else listed.add()
    names = [tensor.name for tensor in model.graph.input]
    entry.value = chance.choice((*_WORDS, *names, ",".join(names), "2"))


def _another_version(model: onnx.ModelProto, chance: random.Random) -> None:
    chance.choice(model.opset_import).version = chance.choice(_SIZES)


CHANGES: Final[tuple[Change, ...]] = (
    _rename,
    _another_type,
    _another_size,
    _less,
    _twice,
    _another_operator,
    _another_wire,
    _another_attribute,
    _another_weight,
    _another_promise,
    _another_version,
)


def wrong(graph: bytes, chance: random.Random) -> bytes:
    """`graph` with something in it that is not as it was."""
    if chance.random() < 0.2:
        return damaged(graph, chance)
    model = onnx.load_from_string(graph)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(CHANGES)(model, chance)
    made: bytes = model.SerializeToString()
    if chance.random() < 0.1:  # a name that is no UTF-8
        name = chance.choice(model.graph.node).output[0].encode()
        made = made.replace(name, b"\xff" * len(name))
    return made


def fit(bundle: Path, name: str, data: bytes) -> None:
    """Put `data` in the place of a file, and into the manifest what it is."""
    file, listed = bundle / name, bundle / MANIFEST_NAME
    file.unlink()
    file.write_bytes(data)
    manifest = Manifest.from_json(listed.read_bytes())
    entry = FileEntry(len(data), sha256(data).hexdigest())
    listed.unlink()
    listed.write_text(replace(manifest, files={**manifest.files, name: entry}).to_json())


def ask(bundle: Path, place: Path) -> None:
    """The command in this process, its streams in files of `place`."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY, 0o600), number)
    os.environ |= {f"XDG_{name}_HOME": str(place) for name in ("DATA", "STATE", "CONFIG", "CACHE")}
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # as in the tokenizer's own process
    known: dict[Any, TokenizerFiles] = {}

    def answer(name: str, which: tuple[Path, bool], _: object, *given: Any, **options: Any) -> Any:
        if which not in known:
            known[which] = TokenizerFiles(which[0], pictures=which[1])
        return json.loads(json.dumps(getattr(known[which], name)(*given, **options)))

    PROCESS.ask, PROCESS.start = answer, lambda: None  # type: ignore[method-assign, assignment]
    sys.argv = ["q35chat", "ask", "--no-save", "--greedy", "--max-new-tokens", "3", "--threads"]
    sys.argv += ["1", "--model-dir", str(bundle), "--image", str(place / "cat.png"), "What is it?"]
    cli.main()


def attack(good: Path, place: Path, chance: random.Random) -> str:
    """Ask a copy of the bundle `good` with a wrong graph; what is wrong with that, or nothing."""
    bundle, name = place / "bundle", chance.choice(GRAPHS)
    shutil.copytree(good, bundle, copy_function=os.link)
    fit(bundle, name, wrong((good / name).read_bytes(), chance))
    (place / "cat.png").write_bytes(sample("PNG"))
    child = _FORKS.Process(target=ask, args=(bundle, place))
    child.start()
    child.join(PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        child.join()
        return f"{name}: not ended after {PATIENCE_S:.0f} s"
    out, err = ((place / stream).read_bytes() for stream in ("out", "err"))
    return said(child.exitcode, out, err.decode("utf-8", "backslashreplace"), name)


def said(code: int, out: bytes, err: str, name: str) -> str:
    """What is wrong with what a command said."""
    lines = err.splitlines()
    if code not in (0, 1):
        return f"{name}: exit code {code}: {lines[-1:]}"
    if code == 1 and not (lines and lines[-1].startswith("q35chat: ")):
        return f"{name}: no line of our own: {lines[-1:]}"
    if len(lines) > 1 or "unexpected" in err:
        return f"{name}: {lines}"
    if any(safe_line(line, len(line)) != line for line in lines):
        return f"{name}: not harmless: {lines!a}"
    if code == 1 and b"q35chat" in out:
        return f"{name}: on stdout: {out!r}"
    return ""


def run(count: int, seed: int, good: Path, place: Path) -> list[str]:
    """`count` wrong graphs in the place of those of the bundle `good`; what was found."""
    found: list[str] = []
    for number in range(count):
        folder = place / str(number)
        folder.mkdir(parents=True)
        if what := attack(good, folder, random.Random(f"{seed} {number}")):
            found.append(f"graph {number}: {what}; kept in {folder}")
        else:
            shutil.rmtree(folder)
        if (number + 1) % _TOLD == 0:
            sys.stdout.write(f"{number + 1} of {count}, {len(found)} findings\n")
            sys.stdout.flush()
    return found


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="q35-graphs-"))
    good = export_bundle(make_checkpoint(place / "checkpoint", seed=5), place / "good")
    found = run(options.count, options.seed, good, place)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"{options.count} wrong graphs, {len(found)} findings\n")
    if not found:
        shutil.rmtree(place)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
