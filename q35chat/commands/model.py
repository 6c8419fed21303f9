"""The model of a command: which bundle it is, and how it is opened, with its runtime and graphs.

The one place where parts are put together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat import processes
from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.bundle.bundle import Bundle, former, is_bundle
from q35chat.bundle.demo import demo_checkpoint, ensure_demo
from q35chat.bundle.foreign import open_bundle
from q35chat.bundle.library import folder_of, own_name
from q35chat.chat.backend import ChatBackend
from q35chat.chat.values import SamplingSettings
from q35chat.commands.next_command import convert_command, doctor_command, left_to_convert
from q35chat.commands.options import DEFAULT_SNAPSHOT_MIB, AnswererOptions, ModelOptions
from q35chat.errors import BundleError, RuntimeFailure, UsageError
from q35chat.runtimes import cpu, runtime
from q35chat.settings import Settings
from q35chat.text import readable_size
from q35chat.user_input import Speculate, typed_path

if TYPE_CHECKING:
    from q35chat.chat.engine import ChatEngine
    from q35chat.chat.prompt.kept import Pool
    from q35chat.endpoint.choice import EndpointChoice
    from q35chat.engine.decoder import OpenGraph, Runtime
    from q35chat.engine.session import GraphSession

DEFAULT_OUT = Path(processes.DEFAULT_OUT)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A bundle's folder, whether it is the demo, how an NPU would run it, how much host memory
    (MiB) snapshots of earlier turns may take, how much disk space (MiB) states that outlive the
    process, and whether tokens are guessed ahead."""

    path: Path
    is_demo: bool = False
    npu: NpuOptions = DEFAULT_NPU
    snapshot_mib: int = DEFAULT_SNAPSHOT_MIB
    speculate: Speculate = "auto"
    state_cache_mib: int = 0


def choose_model(option: Path | None, settings: Settings, demo: Callable[[], Path]) -> ModelChoice:
    """The bundle to use. `demo` makes the demo's; it is called only when nothing else is there.

    A folder that the user named is taken as it is: whoever opens it says what is wrong with it. So
    is one of the models folder by its name.
    """
    if option is not None:
        return ModelChoice(folder_of(option))
    used = used_bundle(settings)
    return ModelChoice(demo(), is_demo=True) if used is None else ModelChoice(used)


def used_bundle(settings: Settings) -> Path | None:
    """The bundle that is used where none is named; None for the demo."""
    if settings.model_dir:
        return folder_of(typed_path(settings.model_dir))
    return DEFAULT_OUT if is_bundle(DEFAULT_OUT) or former(DEFAULT_OUT) else None


def choice_of(
    options: ModelOptions, settings: Settings, note: Callable[[str], None]
) -> ModelChoice:
    """The model that `options` ask for, else `settings`, else the demo, and how it is to run."""
    choice = choose_model(options.model_dir, settings, lambda: make_demo(note))
    if (old := former(choice.path)) is not None:
        note(f"an export to {choice.path} was killed; the bundle it was to replace, {old}, is used")
        choice = replace(choice, path=old)
    return replace(
        choice,
        npu=options.npu,
        snapshot_mib=options.snapshot_mib,
        state_cache_mib=options.state_cache_mib,
        speculate=options.speculate or settings.speculate,
    )


def make_demo(note: Callable[[str], None]) -> Path:
    """The demo's bundle, made if needed; `note` gets a line for each thing a user must know.

    Raises BundleError, ExportError.
    """

    def export(checkpoint: Path, out: Path) -> None:
        from q35export.pipeline import ExportRequest
        from q35export.pipeline import export as run_export
        from q35export.progress import PlainReporter

        request = ExportRequest(
            model=str(checkpoint), out=out, target="cpu", precision="fp32", force=is_bundle(out)
        )
        run_export(request, PlainReporter(StringIO()))  # too short to be worth a bar

    def prepare(checkpoint: Path, out: Path) -> None:
        note("preparing the demo model (once)")
        export(checkpoint, out)

    path = ensure_demo(prepare)
    try:
        Bundle.open(path, check="small")
    except BundleError:
        if is_bundle(path):
            note("the demo model is damaged and made again")
            export(demo_checkpoint(), path)
    note(f"this is the tiny demo model; for a real one run {processes.export_command()}")
    return path


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that answers, and how its checkpoint wants tokens to be chosen."""

    backend: ChatBackend
    sampling: SamplingSettings


ModelLoader = Callable[[ModelChoice, int | None], LoadedModel]


def loader(
    options: AnswererOptions,
    settings: Settings,
    note: Callable[[str], None],
    load: ModelLoader | None = None,
) -> Callable[[], LoadedModel]:
    """What loads the model that `options` ask for: a server's, or a bundle's, by `load` where that
    is given. Raises Q35Error, now for what cannot be chosen and then for what cannot be loaded."""
    from q35chat.commands.remote import chosen_endpoint

    if (server := chosen_endpoint(options, settings)) is not None:
        return partial(load_endpoint, server)
    return partial(load or load_model, choice_of(options, settings, note), options.threads)


def load_endpoint(choice: EndpointChoice) -> LoadedModel:
    """Ask the server about itself. Raises EndpointError, UsageError."""
    from q35chat.endpoint.backend import EndpointBackend

    backend = EndpointBackend.open(choice)
    return LoadedModel(backend, backend.sampling_defaults)


def load_model(choice: ModelChoice, threads: int | None) -> LoadedModel:
    """Load the bundle; slow. Raises BundleError or RuntimeFailure."""
    from q35chat.states.pool import StatePool
    from q35chat.store.folder import states_folder

    limit = choice.state_cache_mib << 20
    engine = load_engine(choice, threads, StatePool(states_folder(), limit) if limit else None)
    return LoadedModel(engine, engine.sampling_defaults)


def load_engine(choice: ModelChoice, threads: int | None, states: Pool | None) -> ChatEngine:
    """Load the bundle, over a pool of `states`; slow. Raises BundleError or RuntimeFailure."""
    bundle = open_bundle(choice.path)

    from q35chat.chat.prompt.tokenizer_process import PROCESS

    PROCESS.start()  # it loads its libraries while this process loads its own

    from q35chat.chat.engine import ChatEngine

    on_npu = bundle.manifest.target != "cpu"
    device = f"NPU {choice.npu.device_id}" if on_npu else "CPU"
    opener = graph_opener(bundle, threads, choice.npu)
    return ChatEngine.open(
        bundle,
        opener,
        name=own_name(choice.path),
        device=device,
        is_demo=choice.is_demo,
        snapshot_bytes=choice.snapshot_mib << 20,
        speculate=choice.speculate,
        states=states,
    )


def graph_opener(bundle: Bundle, threads: int | None, npu: NpuOptions = DEFAULT_NPU) -> Runtime:
    """What runs `bundle`. Raises RuntimeFailure, and UsageError for options that its target
    cannot honour."""
    manifest = bundle.manifest
    if left := left_to_convert(manifest):
        raise RuntimeFailure(
            f"{bundle.path} is not converted for the NPU ({', '.join(left)}): "
            f"run {convert_command(bundle.path)}"
        )
    _check_device(manifest.target, npu, threads)
    if manifest.target == "cpu":
        _check_memory(bundle)
        chosen = cpu(threads)
        return replace(chosen, open_graph=_advising(chosen.open_graph, bundle.path))
    return runtime(bundle, threads, npu)


def _check_memory(bundle: Bundle) -> None:
    """Refuse weights that are more than all memory of the machine. Raises RuntimeFailure."""
    import psutil

    needed, there = bundle.manifest.weight_bytes, psutil.virtual_memory().total
    if needed > there:
        raise RuntimeFailure(
            f"the weights of {bundle.path} take about {readable_size(needed)} of memory, this "
            f"machine has {readable_size(there)}: export it with fewer bits, or a smaller one"
        )


def check_room_beside(folder: Path) -> None:
    """Refuse a bundle whose weights have no room in memory beside the model that is loaded. Raises
    BundleError, RuntimeFailure."""
    import psutil

    manifest = open_bundle(folder, check="names").manifest
    needed, free = manifest.weight_bytes, psutil.virtual_memory().available
    if manifest.target == "cpu" and needed > free:
        raise RuntimeFailure(
            f"the weights of {folder} take about {readable_size(needed)} of memory beside the "
            f"model that answers, {readable_size(free)} are free: choose a smaller one, or let it "
            "answer alone with /model"
        )


def _check_device(target: str, npu: NpuOptions, threads: int | None) -> None:
    """Refuse options that no runtime of a bundle for `target` reads. Raises UsageError."""
    on_cpu = target == "cpu"
    for option, given in (
        ("--device-id", on_cpu and npu.device_id != 0),
        ("--residency", on_cpu and npu.residency != "auto"),
        ("--host-state-roundtrip", on_cpu and npu.host_state_roundtrip),
        ("--threads", not on_cpu and threads is not None),
    ):
        if given:
            other = "an NPU" if on_cpu else "the CPU"
            raise UsageError(
                f"{option} is for bundles for {other}, and this one is for {target}; "
                "leave it out, or choose another with --model-dir"
            )


def _advising(open_graph: OpenGraph, folder: Path) -> OpenGraph:
    """`open_graph`; where a file cannot be loaded, it says how to look for damage."""

    def opened(path: Path) -> GraphSession:
        try:
            return open_graph(path)
        except RuntimeFailure as error:
            remedy = f"`{doctor_command(folder)}` says whether the bundle is damaged"
            raise RuntimeFailure(f"{error}; {remedy}") from error

    return opened
