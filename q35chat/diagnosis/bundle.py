"""Whether a bundle can run here, from what the other probes found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from q35chat.bundle.bundle import Bundle, Manifest, Tell, unheard
from q35chat.bundle.foreign import ForeignBundle, open_bundle
from q35chat.diagnosis.checks import Check, Group
from q35chat.errors import Q35Error
from q35chat.processes import program
from q35chat.text import pluralise, quoted, readable_size

_NEEDED = {
    "cpu": ("onnxruntime",),
    "ascend-310p": ("mindspore_lite", "CANN", "operators"),
}


def bundle(
    path: Path | None,
    groups: Sequence[Group],
    tell: Tell = unheard,
    pictures: Path | None = None,
    demo: Path | None = None,
) -> Iterator[Check]:
    """The bundle, every byte of its files, and all it needs; `path` None is the demo, which is made
    when it is used, with `pictures` to ask it about, or was in the folder `demo`. `tell` hears what
    was read."""
    if path is None:
        made = "made when it is first used" if demo is None else f"made before: {demo}"
        yield Check("bundle", "info", f"the demo, {made}")
        if pictures is not None:
            yield Check("sample pictures", "info", str(pictures))
        yield from _needs("cpu", _NEEDED["cpu"], groups)
        return
    try:
        opened = open_bundle(path, check="names")
    except Q35Error as error:
        yield Check("bundle", "missing", str(path), str(error))
        return
    manifest = opened.manifest
    name = f"{manifest.source.name} for {manifest.target}, {manifest.precision}"
    yield Check("bundle", "ok", f"{path}: {name}")
    if manifest.kept:
        measured = manifest.measured
        yield Check(
            "exactness",
            "info",
            f"{manifest.precision} {manifest.kept}; KLD {measured.get('kld', '?')}, perplexity × "
            f"{measured.get('perplexity_ratio', '?')} of the exact model's",
        )
    yield Check("graphs", "ok", ", ".join(sorted(manifest.graphs.values())))
    yield from _files(opened, tell)
    needed = _NEEDED.get(manifest.target, ())
    if not _has_kernels(manifest):
        needed = tuple(name for name in needed if name != "operators")
    yield from _needs(manifest.target, needed, groups)
    left = [name for name, file in manifest.graphs.items() if file.endswith(".onnx")]
    if manifest.target == "ascend-310p" and left:
        command = f"{program()} convert {quoted(str(path))}"
        yield Check("converted", "missing", f"not {', '.join(left)}", f"run {command}")


def _files(opened: Bundle, tell: Tell) -> Iterator[Check]:
    """Every file that is not as it was exported."""
    if isinstance(opened, ForeignBundle):
        yield Check("files", "info", "made by other scripts, so nobody knows what they should be")
        return
    found = list(opened.damages("full", tell=tell))
    for damage in found:
        yield Check("file", "damaged", f"{damage.name} {damage.what}", damage.remedy)
    entries = opened.manifest.files.values()
    files = pluralise(len(entries), "file")
    if found:
        broken = sum(not damage.remedy for damage in found)
        what = f"{broken} of {files}" if broken else "some that no export wrote"
        yield Check("files", "damaged", what, opened.repair if broken else "")
    else:
        size = readable_size(sum(entry.size for entry in entries))
        yield Check("files", "ok", f"{files}, {size}, all as exported")


def _has_kernels(manifest: Manifest) -> bool:
    """Whether a graph has delta rules of the vendor package."""
    prefill, decode = (manifest.options.get(name, {}) for name in ("prefill", "decode"))
    return prefill.get("delta_rule") != "unfused" or decode.get("cache") != "growing"


def _needs(target: str, needed: Sequence[str], groups: Sequence[Group]) -> Iterator[Check]:
    if target not in _NEEDED:
        yield Check("runtime", "missing", f"none for the target {target}", "update q35chat")
    found = {check.name: check for group in groups for check in group.checks}
    for name in needed:
        check = found.get(name)
        if check is None or check.status in ("missing", "warning"):
            what = check.found if check else "not found out"
            yield Check(f"needs {name}", "missing", what, check.advice if check else "")
    if target == "ascend-310p" and not any(
        check.status == "ok" and check.name.startswith("NPU ") for check in found.values()
    ):
        yield Check("needs NPU", "missing", "none that is healthy", "")
