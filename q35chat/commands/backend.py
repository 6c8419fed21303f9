"""From a bundle's folder to a model that answers: the one place where parts are put together."""

from __future__ import annotations

from dataclasses import dataclass

from q35chat.bundle.foreign import open_bundle
from q35chat.chat.backend import ChatBackend
from q35chat.chat.values import SamplingSettings
from q35chat.commands.model_choice import ModelChoice


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that answers, and how its checkpoint wants tokens to be chosen."""

    backend: ChatBackend
    sampling: SamplingSettings


def load_model(choice: ModelChoice, threads: int | None) -> LoadedModel:
    """Load the bundle; slow. Raises BundleError or RuntimeFailure."""
    bundle = open_bundle(choice.path)

    from q35chat.chat.engine import ChatEngine  # noqa: PLC0415
    from q35chat.commands.graphs import graph_opener  # noqa: PLC0415

    on_npu = bundle.manifest.target != "cpu"
    device = f"NPU {choice.npu.device_id}" if on_npu else "CPU"
    opener = graph_opener(bundle, threads, choice.npu)
    engine = ChatEngine.open(
        bundle,
        opener,
        device=device,
        is_demo=choice.is_demo,
        snapshot_bytes=choice.snapshot_mib << 20,
        speculate=choice.speculate,
    )
    return LoadedModel(engine, engine.sampling_defaults)
