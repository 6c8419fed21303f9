"""A bundle's ONNX graphs converted for the NPU, one by one, each recorded when it is done.

Owns which graphs are left, where results lie, and the manifest. A graph is converted into a folder
of its own and moved when it is whole, so that an interrupted run is just started again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from q35chat.bundle.bundle import Bundle, FileEntry, Manifest
from q35chat.errors import ExportError, Remedy
from q35chat.text import readable_size
from q35export.ascend.converter import ConversionJob, Converter, command_text, run_converter
from q35export.ascend.converter_config import (
    DEFAULT_SETTINGS,
    CompilerSettings,
    GraphInputs,
    config_text,
    read_inputs,
)
from q35export.ascend.forms import AS_EXPORTED, KernelForms, in_graph, rewrite
from q35export.progress import Reporter
from q35export.request import COMPONENTS
from q35export.staging import (
    clear_leftovers,
    exclusive,
    replace_manifest,
    sigterm_raises,
    undisturbed,
)
from q35export.write import file_entry

CONFIG_FILE = "converter.ini"
_STAGING = ".converting"
_REWRITTEN = "kernels.onnx"  # the graph in other forms of its kernels
_TARGET = "ascend-310p"
_SPREAD = 2.2  # 21 GB for a 4B prefill of 9.7 GB


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """How it ended: graphs converted now, graphs that were done before, and, where there was no
    converter, the commands to type on the NPU host in the bundle's folder."""

    status: Literal["converted", "up-to-date", "no-converter"]
    converted: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def convert(
    path: Path,
    converter: Converter | None,
    reporter: Reporter,
    settings: CompilerSettings = DEFAULT_SETTINGS,
    *,
    forms: KernelForms = AS_EXPORTED,
    drop_onnx: bool = False,
) -> ConvertResult:
    """Convert what is left of the bundle at `path`, and what was converted with other settings or
    `forms` of its kernels.

    A result that was made by hand is taken over. `drop_onnx` deletes the ONNX files of converted
    graphs. Raises BundleError, and ExportError, which also tells who else is writing the bundle.
    """
    manifest = Bundle.open(path).manifest
    options = _Options(settings, forms)
    if not drop_onnx and all(options.made(manifest, name) for name in manifest.graphs):
        return ConvertResult("up-to-date", before=tuple(manifest.graphs))
    try:
        with sigterm_raises(), exclusive(path.resolve(), "a conversion"):
            clear_leftovers(path)
            return _converted(path, converter, reporter, options, drop_onnx=drop_onnx)
    except OSError as error:
        place = error.filename or path
        raise ExportError(
            f"cannot write {place}: {error.strerror}; make room or give yourself the right to, and "
            "run the command again: it goes on where it stopped"
        ) from error


@dataclass(frozen=True, slots=True)
class _Options:
    """How a bundle is to be converted."""

    settings: CompilerSettings
    forms: KernelForms

    def made(self, manifest: Manifest, name: str) -> bool:
        """Whether the graph was converted so, or so that nobody recorded how."""
        options = manifest.options.get(name, {})
        same = options.get("kernels", "") == str(self.forms.of(name))
        return is_converted(manifest, name) and self.compiled(manifest, name) and same

    def compiled(self, manifest: Manifest, name: str) -> bool:
        """Whether a converted graph need not be converted again. Some of what is asked is for its
        runtime."""
        options = manifest.options.get(name, {})
        said = options.get("compiler", self.settings.text())
        written = in_graph(str(options.get("kernels", "")))
        return said == self.settings.text() and written == in_graph(str(self.forms.of(name)))

    def graph(self, name: str) -> str:
        """The ONNX file that is converted, in the bundle."""
        rewritten = name == "decode" and in_graph(str(self.forms.of(name)))
        return f"{name}/{_REWRITTEN}" if rewritten else _onnx(name)

    def write_graph(self, path: Path, name: str) -> None:
        """Write that file where it is not the exported one; its weights are those of that."""
        if self.graph(name) != _onnx(name):
            model = ir.load(path / _onnx(name))
            rewrite(model, self.forms.of(name))
            ir.save(model, path / self.graph(name))


def _converted(
    path: Path,
    converter: Converter | None,
    reporter: Reporter,
    options: _Options,
    *,
    drop_onnx: bool,
) -> ConvertResult:
    bundle = Bundle.open(path)
    if bundle.manifest.target != _TARGET:
        raise ExportError(
            f"{path} is for the target {bundle.manifest.target}, which needs no conversion",
            Remedy.TARGET,
            target=_TARGET,
        )
    names = [name for name in COMPONENTS[_TARGET] if name in bundle.manifest.graphs]
    before = tuple(name for name in names if options.made(bundle.manifest, name))
    if converter is not None and before != tuple(names):
        converter.check()
    converted, commands = [], []
    for name in names:
        if name in before:
            continue
        if is_converted(bundle.manifest, name) and not options.compiled(bundle.manifest, name):
            _forget(path, name)
        inputs = read_inputs(bundle.path / _onnx(name))
        config = _write_config(bundle, name, inputs, options.settings)
        if converted_graph(path / name, name) is None:
            options.write_graph(path, name)
            graph = options.graph(name)
            if converter is None:
                made = f"{name}/{CONFIG_FILE}", f"{name}/{name}"
                commands.append(command_text(graph, *made, keeps_int64=inputs.in_int8))
                continue
            _convert(bundle, name, graph, config, converter, reporter, in_int8=inputs.in_int8)
        _record(path, name, options, reporter)
        converted.append(name)
    if drop_onnx:
        _drop_onnx(path)
    if commands:
        return ConvertResult("no-converter", tuple(converted), before, tuple(commands))
    return ConvertResult("converted" if converted else "up-to-date", tuple(converted), before)


def is_converted(manifest: Manifest, name: str) -> bool:
    """Whether the graph `name` is recorded as converted."""
    return manifest.graphs[name].endswith(".mindir")


def _forget(path: Path, name: str) -> None:
    """Make the ONNX graph `name` the bundle's again and delete what was made of it."""
    manifest = Bundle.open(path).manifest
    kept = {_onnx(name), f"{name}/model.bin"}
    if _onnx(name) not in manifest.files:
        raise ExportError(
            f"{name} was converted with other settings and its ONNX file was deleted:",
            Remedy.EXPORT_AGAIN,
        )
    made = [file for file in manifest.files if file.startswith(f"{name}/") and file not in kept]
    files = {file: entry for file, entry in manifest.files.items() if file not in made}
    graphs = {**manifest.graphs, name: _onnx(name)}
    replace_manifest(path, replace(manifest, files=files, graphs=graphs))
    for file in made:
        (path / file).unlink()


def _onnx(name: str) -> str:
    return f"{name}/model.onnx"


def _exported(name: str) -> tuple[str, ...]:
    return (_onnx(name), f"{name}/{_REWRITTEN}", f"{name}/model.bin")


def _write_config(
    bundle: Bundle, name: str, inputs: GraphInputs, settings: CompilerSettings
) -> Path:
    text = config_text(inputs, bundle.manifest.model.spatial_merge_size**2, settings)
    config = bundle.path / name / CONFIG_FILE
    config.write_text(text, encoding="ascii")
    return config


def _convert(
    bundle: Bundle,
    name: str,
    graph: str,
    config: Path,
    converter: Converter,
    reporter: Reporter,
    *,
    in_int8: bool,
) -> None:
    folder = (bundle.path / name).resolve()
    size = _graph_size(bundle.manifest, name)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise ExportError(
            f"converting {name} needs {readable_size(size)} beside {folder}, "
            f"{readable_size(free)} are free; free {readable_size(size - free)}"
        )
    if free < size * _SPREAD:
        reporter.note(
            f"{name}: {readable_size(free)} are free; the result of a graph of several lengths has "
            f"been seen to take {readable_size(int(size * _SPREAD))}"
        )
    staging = folder / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    job = ConversionJob(
        name=name,
        graph=(bundle.path / graph).resolve(),
        config=config.resolve(),
        output=staging / name,
        log=folder / "convert.log",
        keeps_int64=in_int8,
    )
    reporter.begin(name, size)
    shown = 0

    def show_growth() -> None:
        nonlocal shown
        grown = min(_folder_size(staging), size)
        if grown > shown:
            reporter.advance(name, grown - shown)
            shown = grown

    try:
        run_converter(converter, job, show_growth)
        if converted_graph(staging, name) is None:
            raise ExportError(f"{name}: the converter left no {name}.mindir; log: {job.log}")
        take_result(staging, folder, name)
    finally:
        with undisturbed():
            shutil.rmtree(staging, ignore_errors=True)
    reporter.end(name)


def _record(path: Path, name: str, chosen: _Options, reporter: Reporter) -> None:
    """Put the converted graph into the manifest, in one step."""
    made = converted_files(path / name, name)
    manifest = Bundle.open(path).manifest
    files = dict(manifest.files)
    if chosen.graph(name) == _onnx(name):
        (path / name / _REWRITTEN).unlink(missing_ok=True)
    else:
        made = (*made, path / chosen.graph(name))
    for file in (*made, path / name / CONFIG_FILE):
        files[file.relative_to(path).as_posix()] = file_entry(file)
    result = made[0].relative_to(path).as_posix()
    graphs = {**manifest.graphs, name: result}
    how = {"converted": "mindir", "compiler": chosen.settings.text()}
    how |= {"kernels": str(chosen.forms.of(name))}
    options = {**manifest.options, name: {**manifest.options.get(name, {}), **how}}
    replace_manifest(path, replace(manifest, files=files, graphs=graphs, options=options))
    reporter.note(f"{name}: {result} recorded")


def _drop_onnx(path: Path) -> None:
    """Delete the ONNX files of converted graphs, after the manifest has forgotten them."""
    manifest = Bundle.open(path).manifest
    dropped = [
        name
        for name in manifest.files
        for graph in manifest.graphs
        if is_converted(manifest, graph) and name in _exported(graph)
    ]
    files: Mapping[str, FileEntry] = {
        name: entry for name, entry in manifest.files.items() if name not in dropped
    }
    replace_manifest(path, replace(manifest, files=files))
    for name in dropped:
        (path / name).unlink()


def _graph_size(manifest: Manifest, name: str) -> int:
    return sum(
        entry.size for file, entry in manifest.files.items() if file.startswith(f"{name}/model.")
    )


def _folder_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


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
