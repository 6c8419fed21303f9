"""Checkpoint in, bundle out: the steps of an export in order.

Owns the order only; each step lives in a module of its own. Everything that can be refused is
refused before the first byte is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat import __version__
from q35chat.bundle.bundle import Bundle
from q35chat.errors import CheckpointError, ExportError, Option, Remedy, UsageError
from q35chat.text import readable_size
from q35chat.user_input import MIN_CAPACITY
from q35export.checkpoint import Checkpoint, refuse_quantised
from q35export.components import (
    Builders,
    ascend_builder,
    budgeted_plan,
    builders_for,
    component_options,
    text_builder,
    text_plan,
)
from q35export.config import load_config
from q35export.consumed import ConsumedCheckpoint
from q35export.inventory import Inventory, expected_tensors
from q35export.matrix import TensorSource
from q35export.output_state import (
    Foreign,
    OutputState,
    Standing,
    Unreadable,
    Vacant,
    bundle_to_keep,
    check_replaceable,
    inspect,
    is_complete,
    left_to_do,
    place_of,
)
from q35export.plan import check_space, make_plan
from q35export.processor import processor_files, written
from q35export.progress import Reporter
from q35export.request import ExportPlan, ExportRequest, ExportResult, default_target
from q35export.safetensors_files import read_gone
from q35export.source import LocalCheckpoint, Note, is_same_hub_source, resolve
from q35export.staging import (
    exclusive,
    is_resumable,
    publish,
    resumable_folder,
    sigterm_raises,
    staging_folder,
)
from q35export.write import Ingredients, write_bundle

if TYPE_CHECKING:
    from q35export.calibration.calibrate import Texts
    from q35export.precision import PrecisionPlan

_LOOKED_AT = 6
"""Windows of the calibration text that tell where more bits count."""

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
    request = replace(request, out=place_of(request.out), target=request.target or default_target())
    builders = builders_for(request) if builders is None else builders
    state = inspect(request.out)
    if isinstance(state, Foreign):
        raise state.error
    if request.dry_run or request.force or isinstance(state, Vacant):
        check_replaceable(request.out)
    if request.dry_run:
        local = resolve(request, reporter.note, weights=False)
        made_of = _checked(gather(request, local, builders, reporter.note))
        _, plan = _planned(made_of, state)
        message = f"dry run: nothing was written to {request.out}"
        return ExportResult("planned", request.out, message, local.folder, plan)
    known = _known_fingerprint(state, request)
    if known is not None:
        remaining = left_to_do(state, request, known, reporter)
        if remaining is None:
            return _up_to_date(request)
        request = remaining
    local = resolve(request, reporter.note)
    remaining = left_to_do(state, request, local.source.fingerprint, reporter)
    if remaining is None:
        return _up_to_date(request, local)
    request = remaining
    check_replaceable(request.out)
    made_of = _checked(gather(request, local, builders, reporter.note))
    request = made_of.request
    with sigterm_raises(), exclusive(request.out):
        state = inspect(request.out)
        if is_complete(state, request, local.source.fingerprint):
            return _up_to_date(request, local)
        return _write(made_of, state, local, reporter)


def _known_fingerprint(state: OutputState, request: ExportRequest) -> str | None:
    """The fingerprint that the manifest has of this very source, where that can be told without
    the checkpoint. Raises BundleError for a manifest that cannot be read."""
    if request.force:
        return None
    match state:
        case Unreadable(error):
            raise error
        case Standing(bundle) if is_same_hub_source(request, bundle.manifest.source):
            return bundle.manifest.source.fingerprint
    return None


def gather(
    request: ExportRequest, local: LocalCheckpoint, builders: Builders, note: Note
) -> Ingredients:
    """What the bundle is made of, once everything in it is checked that can be without reading a
    weight; of a checkpoint that was fetched without its weights, zeros.

    Of a model without a vision tower the request, too. Raises CheckpointError.
    """
    config = load_config(local.folder)
    refuse_quantised(local.folder)
    weights: TensorSource = Inventory()
    remarks: tuple[str, ...] = ()
    if local.complete:
        weights = checkpoint = Checkpoint.open(local.folder, consumed=request.stream)
        config, remarks = checkpoint.fit(config)
    request = replace(
        request, pictures=config.vision is not None, dense=config.text.experts is None
    )
    if not request.components:
        raise CheckpointError(
            f"{local.folder} has no vision tower, the model sees no pictures:", Remedy.WHOLE_BUNDLE
        )
    if local.complete:
        remarks += checkpoint.check(config, request.weights)
    for remark in remarks:
        note(remark)
    processor = processor_files(local.folder, config, note)
    drafts = None
    if request.mtp and "text" in request.components:
        from q35export.calibration.frequent import frequent_tokens  # noqa: PLC0415

        with written(processor) as folder:
            drafts = frequent_tokens(folder, config.text.vocab_size)
        if drafts is not None:
            builders = {**builders, "text": text_builder(drafts=drafts)}
    return Ingredients(
        request=request,
        source=local.source,
        config=config,
        weights=weights,
        builders=builders,
        processor=processor,
        drafts=drafts,
    )


def _checked(made_of: Ingredients) -> Ingredients:
    """As it is; UsageError where the model has no positions for the slots that are wanted."""
    text = made_of.config.text
    if text.experts and made_of.request.budget:
        raise UsageError(
            f"more bits where they count ({Option.PRECISION} int4-exact, {Option.BITS}) are for "
            f"dense models, this one has {text.experts.count} experts a layer: use "
            f"{Option.PRECISION} int4 or int8"
        )
    wanted, longest = made_of.request.max_seq_len, text.max_positions
    if wanted > longest:
        raise UsageError(
            f"{Option.MAX_SEQ_LEN} {wanted} is more than the model's {longest} "
            f"positions (max_position_embeddings); give {MIN_CAPACITY} to {longest}"
        )
    return made_of


def _write(
    made_of: Ingredients, state: OutputState, local: LocalCheckpoint, reporter: Reporter
) -> ExportResult:
    request = made_of.request
    keep, plan = _planned(made_of, state)
    check_space(plan, freed=_to_be_freed(made_of))
    try:
        with (
            _rounded(made_of, plan, reporter) as rounded,
            staging_folder(request.out) as folder,
        ):
            if request.budget or request.w8a8:  # planned before anybody knew where bits would go
                plan = make_plan(request, rounded.config, rounded.builders, rounded.processor, keep)
            write_bundle(folder, rounded, keep, plan, reporter)
            publish(folder, request.out)
    except OSError as error:
        raise ExportError(
            f"cannot write the bundle beside {request.out}: {error.strerror or error}"
        ) from error
    message = f"exported {local.source.name} to {request.out}: {readable_size(plan.total)} written"
    return ExportResult("exported", request.out, message, local.folder, plan)


@contextmanager
def _rounded(
    made_of: Ingredients, planned: ExportPlan, reporter: Reporter
) -> Iterator[Ingredients]:
    """With the builder of a decoder whose matrices are rounded and measured, where they are to be
    quantised."""
    request, config = made_of.request, made_of.config.text
    if request.w8a8 and request.components != ("vision",):
        with _in_int8(made_of, planned, reporter) as fitted:
            yield fitted
        return
    if request.runs_on != "cpu" or request.stored_as == "fp32" or "text" not in request.components:
        yield made_of
        return
    from q35export.calibration.allocation import described, has_room  # noqa: PLC0415
    from q35export.calibration.calibrate import calibrate, work_bytes  # noqa: PLC0415
    from q35export.calibration.codes import ROUNDED_FILE  # noqa: PLC0415
    from q35export.calibration.sensitivity import budgeted, sensitivity  # noqa: PLC0415
    from q35export.calibration.text import read_texts  # noqa: PLC0415

    weights, plan = made_of.weights, text_plan(request)
    with written(made_of.processor) as read:
        texts = read_texts(request, read, config)
    check_space(planned, work_bytes(config, texts), _to_be_freed(made_of))
    options = component_options(request, "text") | {"max_seq_len": 0, "mtp": ""}
    key = json.dumps([__version__, made_of.source.fingerprint, options], sort_keys=True)
    folder = staging_folder(request.out, "rounded")
    if request.rounding == "calibrated" or config.experts or request.stream:
        if request.stream:
            _check_consumed(made_of, key)
        folder = resumable_folder(request.out, key)
    with folder as work:
        consumed = _consumed(made_of, work) if request.stream else None
        weights = consumed or weights
        texts = _with_pictures(texts, replace(made_of, weights=weights), plan)
        told: dict[str, str] = {}
        if request.budget:
            some = texts.calibration[:_LOOKED_AT]
            if not has_room(budgeted(config, weights, plan), request.budget):
                some = []
            costs = sensitivity(config, weights, plan, some, work, reporter) if some else {}
            plan = budgeted_plan(plan, config, weights, costs, request.budget)
            told["formats"] = described({name: one.fmt for name, one in plan.matrices.items()})
            reporter.note(f"more than 4 bits in blocks of 128: {told['formats'] or 'nowhere'}")
        plan, kept = calibrate(config, weights, plan, texts, work, reporter, consumed)
        reporter.note(kept.said())
        if request.rounding == "nearest":
            reporter.note(f"{Option.NO_CALIBRATE}: {request.stored_as} keeps more when calibrated")
        builders = {**made_of.builders, "text": text_builder(plan.matrices, made_of.drafts)}
        told |= kept.options()
        begun = work / ROUNDED_FILE
        yield replace(made_of, builders=builders, weights=weights, kept=told, begun=begun)


@contextmanager
def _in_int8(
    made_of: Ingredients, planned: ExportPlan, reporter: Reporter
) -> Iterator[Ingredients]:
    """With the builders of an NPU's decoder that multiplies in int8 what a calibration has found
    to bear it."""
    from q35export.calibration.calibrate import work_bytes  # noqa: PLC0415
    from q35export.calibration.int8_steps import calibrate_int8  # noqa: PLC0415
    from q35export.calibration.text import read_texts  # noqa: PLC0415

    request, config, plan = made_of.request, made_of.config.text, text_plan(made_of.request)
    with written(made_of.processor) as read:
        texts = read_texts(request, read, config)
    check_space(planned, work_bytes(config, texts))
    options = component_options(request, "decode") | {"max_seq_len": 0, "cache": ""}
    key = json.dumps([__version__, made_of.source.fingerprint, options], sort_keys=True)
    with resumable_folder(request.out, key) as work:
        texts = _with_pictures(texts, made_of, plan)
        plan, kept, floats = calibrate_int8(config, made_of.weights, plan, texts, work, reporter)
        reporter.note(f"not in int8, which would cost too much: {floats or 'nothing'}")
        reporter.note(kept.said())
        decoder = [name for name in made_of.builders if name != "vision"]
        builders = {name: ascend_builder(name, plan.steps) for name in decoder}
        told = kept.options() | ({"floats": floats} if floats else {})
        yield replace(made_of, builders={**made_of.builders, **builders}, kept=told)


def _with_pictures(texts: Texts, made_of: Ingredients, plan: PrecisionPlan) -> Texts:
    """With windows of our own pictures where our own text is read by a model that sees them."""
    from q35export.calibration.pictures import picture_windows  # noqa: PLC0415

    request, config = made_of.request, made_of.config
    if not texts.calibration or request.calibration is not None or config.vision is None:
        return texts
    with suppress(CheckpointError), written(made_of.processor) as read:  # half a tower
        shown = picture_windows(config, made_of.weights, plan, read)
        return replace(texts, calibration=[*texts.calibration, *shown])
    return texts


def _consumed(made_of: Ingredients, work: Path) -> ConsumedCheckpoint:
    """The checkpoint as one whose files go with their layers."""
    assert isinstance(made_of.weights, Checkpoint)
    fingerprint = made_of.source.fingerprint
    return ConsumedCheckpoint(made_of.weights, _needed(made_of), work, fingerprint)


def _to_be_freed(made_of: Ingredients) -> int:
    """Bytes of the checkpoint that are deleted before the bundle is written."""
    if not made_of.request.stream or "text" not in made_of.request.components:
        return 0
    assert isinstance(made_of.weights, Checkpoint)
    return ConsumedCheckpoint.to_be_freed(made_of.weights, _needed(made_of))


def _needed(made_of: Ingredients) -> set[str]:
    """The tensors that are read; those of the tower by the calibration, too, for its pictures."""
    config, parts = made_of.config, {*made_of.request.weights}
    if config.vision is not None:
        parts.add("vision")
    return {name for part in parts for name in expected_tensors(config, part)}


def _check_consumed(made_of: Ingredients, key: str) -> None:
    """Refuse to begin anew where weights are gone that only an export's work folder still has."""
    assert isinstance(made_of.weights, Checkpoint)
    folder, out = made_of.weights.folder, made_of.request.out
    gone = read_gone(folder).files
    if gone and not is_resumable(out, key):
        raise ExportError(
            f"{len(gone)} weight files of {folder} were deleted ({Option.STREAM}) by an export that"
            f" {out} and these options do not go on with: use its own, or download the checkpoint "
            "again"
        )


def _planned(made_of: Ingredients, state: OutputState) -> tuple[Bundle | None, ExportPlan]:
    """The bundle that is kept in part, if any, and what is written beside it."""
    request = made_of.request
    keep = bundle_to_keep(state, request, made_of.source.fingerprint)
    return keep, make_plan(request, made_of.config, made_of.builders, made_of.processor, keep)


def _up_to_date(request: ExportRequest, local: LocalCheckpoint | None = None) -> ExportResult:
    message = f"{request.out} is up to date: exported from this source with these options before"
    return ExportResult("up-to-date", request.out, message, local.folder if local else None)
