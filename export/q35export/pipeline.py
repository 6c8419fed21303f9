"""Checkpoint in, bundle out: the steps of an export in order.

Owns the order only; each step lives in a module of its own. Everything that can be refused is
refused before the first byte is written.
"""

from __future__ import annotations

from dataclasses import replace

from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.errors import ExportError, UsageError
from q35chat.text import readable_size
from q35chat.user_input import MIN_CAPACITY
from q35export.checkpoint import Checkpoint
from q35export.components import Builders, builders_for
from q35export.config import ModelConfig, load_config
from q35export.output_state import (
    bundle_to_keep,
    check_place,
    check_replaceable,
    is_up_to_date,
    place_of,
    repairs,
)
from q35export.plan import check_space, make_plan
from q35export.processor import processor_files
from q35export.progress import Reporter
from q35export.request import ExportPlan, ExportRequest, ExportResult, default_target
from q35export.source import LocalCheckpoint, is_same_hub_source, resolve
from q35export.staging import exclusive, publish, sigterm_raises, staging_folder
from q35export.write import Ingredients, write_bundle

__all__ = ["ExportPlan", "ExportRequest", "ExportResult", "export"]


def export(
    request: ExportRequest, reporter: Reporter, *, builders: Builders | None = None
) -> ExportResult:
    """Export the checkpoint of `request` into the bundle `request.out`.

    Writes nothing when the bundle is there already and whole, and nothing in a dry run. What is
    damaged in it is exported again. `builders`
    replaces the graph builders of the target. Raises UsageError, CheckpointError, BundleError
    or ExportError; whatever happens, `request.out` is then what it was before.
    """
    target = request.target or default_target()
    request = replace(request, out=place_of(request.out), target=target)
    builders = builders_for(request) if builders is None else builders
    check_place(request.out)
    if request.dry_run or request.force or not is_bundle(request.out):
        check_replaceable(request.out)
    if not request.dry_run and _is_known(request, target):
        mended = repairs(request.out, request, reporter)
        if mended is None:
            return _up_to_date(request)
        request = mended
    local = resolve(request, reporter.note, weights=not request.dry_run)
    if request.dry_run:
        return _planned(request, target, local, builders, reporter)
    if is_up_to_date(request.out, request, target, local.source.fingerprint):
        mended = repairs(request.out, request, reporter)
        if mended is None:
            return _up_to_date(request, local)
        request = mended
    check_replaceable(request.out)
    made_of = _gather(request, target, local, builders, reporter)
    with sigterm_raises(), exclusive(request.out):
        check_place(request.out)
        if is_up_to_date(request.out, request, target, local.source.fingerprint):
            return _up_to_date(request, local)
        return _write(made_of, local, reporter)


def _is_known(request: ExportRequest, target: str) -> bool:
    """Whether the bundle is there already, as far as can be told without the checkpoint."""
    if request.force or not is_bundle(request.out):
        return False
    source = Bundle.open(request.out, check="names").manifest.source
    if not is_same_hub_source(request, source):
        return False
    return is_up_to_date(request.out, request, target, source.fingerprint)


def _gather(
    request: ExportRequest,
    target: str,
    local: LocalCheckpoint,
    builders: Builders,
    reporter: Reporter,
) -> Ingredients:
    config = _config(request, local)
    checkpoint = Checkpoint.open(local.folder)
    for remark in checkpoint.check(config, request.weights):
        reporter.note(remark)
    return Ingredients(
        request=request,
        target=target,
        source=local.source,
        config=config,
        weights=checkpoint,
        builders=builders,
        processor=processor_files(local.folder),
    )


def _write(made_of: Ingredients, local: LocalCheckpoint, reporter: Reporter) -> ExportResult:
    request = made_of.request
    fingerprint = local.source.fingerprint
    keep = bundle_to_keep(request.out, request, made_of.target, fingerprint)
    plan = make_plan(request, made_of.config, made_of.builders, made_of.processor, keep)
    check_space(plan)
    try:
        with staging_folder(request.out) as folder:
            write_bundle(folder, made_of, keep, plan, reporter)
            publish(folder, request.out)
    except OSError as error:
        raise ExportError(
            f"cannot write the bundle beside {request.out}: {error.strerror or error}"
        ) from error
    message = f"exported {local.source.name} to {request.out}: {readable_size(plan.total)} written"
    return ExportResult("exported", request.out, message, local.folder, plan)


def _planned(
    request: ExportRequest,
    target: str,
    local: LocalCheckpoint,
    builders: Builders,
    reporter: Reporter,
) -> ExportResult:
    config = _config(request, local)
    if local.complete:
        for remark in Checkpoint.open(local.folder).check(config, request.weights):
            reporter.note(remark)
    keep = bundle_to_keep(request.out, request, target, local.source.fingerprint)
    plan = make_plan(request, config, builders, processor_files(local.folder), keep)
    message = f"dry run: nothing was written to {request.out}"
    return ExportResult("planned", request.out, message, local.folder, plan)


def _config(request: ExportRequest, local: LocalCheckpoint) -> ModelConfig:
    config = load_config(local.folder)
    longest = config.text.max_positions
    if request.max_seq_len > longest:
        raise UsageError(
            f"--max-seq-len {request.max_seq_len} is more than the model's {longest} positions "
            f"(max_position_embeddings); give {MIN_CAPACITY} to {longest}"
        )
    return config


def _up_to_date(request: ExportRequest, local: LocalCheckpoint | None = None) -> ExportResult:
    message = f"{request.out} is up to date: exported from this source with these options before"
    return ExportResult("up-to-date", request.out, message, local.folder if local else None)
