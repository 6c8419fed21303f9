"""What a model would take at each precision, from its small files alone; no weights are fetched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psutil

from q35export.checkpoint import Checkpoint
from q35export.components import builders_for
from q35export.config import ModelConfig, load_config
from q35export.output_state import check_place
from q35export.plan import PROGRAM_BYTES, make_plan
from q35export.processor import processor_files
from q35export.request import DTYPES, PRECISIONS, ExportPlan, ExportRequest, default_target
from q35export.source import LocalCheckpoint, resolve


def estimate(request: ExportRequest) -> dict[str, Any]:
    """The estimate as a JSON object; sizes in bytes. Raises Q35Error, also for a bad `out`."""
    check_place(request.out)
    request = replace(request, target=request.target or default_target())
    local = resolve(request, _say_nothing, weights=False)
    config = load_config(local.folder)
    if local.complete:
        Checkpoint.open(local.folder).check(config, request.weights)
    return {
        "longest": config.text.max_positions,
        "memory_free": psutil.virtual_memory().available,
        "costs": [_cost(name, offer, config, local) for name, offer in _offers(request)],
    }


def _offers(request: ExportRequest) -> list[tuple[str, ExportRequest]]:
    """The precisions that the target has, smallest first."""
    if request.target != "cpu":
        return [(DTYPES[0], replace(request, precision=None))]
    return [(name, replace(request, precision=name)) for name in reversed(PRECISIONS)]


def _cost(
    name: str, request: ExportRequest, config: ModelConfig, local: LocalCheckpoint
) -> dict[str, Any]:
    request = replace(request, max_seq_len=min(request.max_seq_len, config.text.max_positions))
    plan = make_plan(
        request, config, builders_for(request), processor_files(local.folder), keep=None
    )
    memory = plan.memory
    return {
        "precision": name,
        "disk": plan.total,
        "memory": PROGRAM_BYTES + memory.weights + memory.states,
        "slot": memory.kv_cache // request.max_seq_len,
        "parts": [[part, _size_of(part, plan)] for part in request.components],
    }


def _size_of(component: str, plan: ExportPlan) -> int:
    return sum(file.size for file in plan.files if file.path.startswith(f"{component}/"))


def _say_nothing(_: str) -> None:
    """The screen says what is going on."""
