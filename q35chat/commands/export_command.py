"""The export that makes a bundle again or adds to it, as a command line, from its manifest.

The manifest knows a hub's model by its id and a folder only by its name; where it cannot be typed
as it is, words say so. Must not know what is wrong with the bundle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from q35chat.bundle.manifest import Manifest, OptionValue
from q35chat.processes import program
from q35chat.text import quoted

_HUBS = ("huggingface", "modelscope")
_OLD_BLOCK_SIZE = 32


def repair(manifest: Manifest, folder: Path) -> str:
    """What to do about damage in `folder`, which `manifest` describes."""
    return _in_words(manifest, [*_options(manifest), _out(folder), "--force"])


def adding(manifest: Manifest, component: str, folder: Path, model: str | None = None) -> str:
    """What to do to have `component` in `folder`, too; `model` is its checkpoint, where known."""
    options = [*_options(manifest, component), _out(folder), f"--component {component}"]
    return _in_words(manifest, options, model)


def _in_words(manifest: Manifest, options: list[str], model: str | None = None) -> str:
    model = model or _hub_id(manifest)
    if model is None:
        folder = f"the folder of its checkpoint, {manifest.source.name}"
        return f"export it from {folder}, with `{' '.join(options)}`"
    return f"run `{' '.join((program(), 'export', quoted(model), *options))}`"


def _hub_id(manifest: Manifest) -> str | None:
    hub = manifest.source.fingerprint.partition(":")[0]
    return manifest.source.name if hub in _HUBS else None


def _out(folder: Path) -> str:
    return f"--out {quoted(str(folder))}"


def _source(manifest: Manifest) -> Iterator[str]:
    """The hub and what was asked of it. The newest of a branch is asked for by no revision."""
    hub, _, rest = manifest.source.fingerprint.partition(":")
    revision = manifest.source.revision
    if hub == "modelscope":
        yield "--source modelscope"
    if hub in _HUBS and revision and revision != rest.rpartition("@")[2]:
        yield f"--revision {quoted(revision)}"


def _options(manifest: Manifest, component: str | None = None) -> Iterator[str]:
    """What the bundle was exported with; `component` is the only part that is wanted."""
    options = _together(manifest)
    yield from _source(manifest)
    if manifest.target == "cpu":
        yield f"--precision {manifest.precision}"
        block_size = options.get("block_size", _OLD_BLOCK_SIZE)
        if manifest.precision != "fp32" and block_size != "auto":
            yield f"--block-size {block_size}"
        if options.get("bits", "auto") != "auto" and component != "vision":
            yield f"--bits {options['bits']}"
        if manifest.precision != "fp32" and component != "vision" and _is_nearest(manifest):
            yield "--no-calibrate"
        if options.get("mtp") == "head" and component != "vision":
            yield "--mtp"
    else:
        yield f"--target {quoted(manifest.target)}"
        yield from _npu_options(manifest.precision, options)
    if manifest.capacity and component != "vision":
        yield f"--max-seq-len {manifest.capacity}"


def _is_nearest(manifest: Manifest) -> bool:
    """Whether there is a decoder and it was not calibrated, as none was in earlier versions."""
    text = manifest.options.get("text")
    return text is not None and text.get("rounding", "nearest") == "nearest"


def _npu_options(precision: str, options: Mapping[str, OptionValue]) -> Iterator[str]:
    if precision == "w8a8":
        yield f"--precision {precision}"
    yield f"--dtype {options.get('dtype', precision)}"
    for name in ("gears", "image_gears"):
        if options.get(name):
            yield f"--{name.replace('_', '-')} {options[name]}"
    if options.get("delta_rule") == "unfused":
        yield "--no-fused-prefill"
    if options.get("cache") == "growing":
        yield "--no-fused-decode"
    elif options.get("states") == "none":
        yield "--stateless-prefill"
    if options.get("step_tokens"):
        yield f"--step-tokens {options['step_tokens']}"


def _together(manifest: Manifest) -> dict[str, OptionValue]:
    """The options of all components; those of a prompt's graph win."""
    together: dict[str, OptionValue] = {}
    for name in sorted(manifest.options, key=lambda name: name in ("text", "prefill")):
        together |= manifest.options[name]
    return together
