"""Names and gears of the 310P's graphs, where a converted file no longer tells them itself.

A graph keeps its order of inputs and outputs through conversion, not always its names. Gears are
written as the engine reads them: `input_ids:1=32,image_embeds:0=16;...`, one entry for each
dynamic axis. Pure text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

AxisSizes = Mapping[tuple[str, int], int]

_STATES = ("conv_states", "recurrent_states", "kv_cache")
_PASTS = tuple(f"past_{name}" for name in _STATES)
_TEXT = ("input_ids", "attention_mask", "position_ids")
_INPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "prefill": ((*_TEXT, "image_embeds"), (*_TEXT, "image_embeds", *_PASTS, "past_len")),
    "decode": ((*_TEXT, *_PASTS),),
    "vision": (
        ("pixel_values",),
        ("pixel_values", "position_index", "position_weight", "patch_position", "patch_mask"),
    ),
}
_RESULTS = ("logits", *(f"present_{name}" for name in _STATES))
_OUTPUTS = {"prefill": _RESULTS, "decode": _RESULTS, "vision": ("image_embeds",)}


def ports(
    kind: str, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names the engine uses for a graph's inputs and outputs: the graph's own where they are
    the contract's, else the contract's in its order."""
    wanted = next((names for names in _INPUTS.get(kind, ()) if len(names) == len(inputs)), None)
    if wanted is None or wanted[0] in inputs:
        wanted = tuple(inputs)
    out: tuple[str, ...] = _OUTPUTS.get(kind, ())
    if len(out) != len(outputs) or out[0] in outputs:
        out = tuple(outputs)
    return wanted, out


def read_gears(
    input_shape: str, dynamic_dims: str, renamed: Mapping[str, str]
) -> tuple[AxisSizes, ...]:
    """Gears of `Model.get_model_info`: each lists the values of the -1s of `input_shape` in order.

    `renamed` gives the engine's name of an input. Empty where the texts do not fit together.
    """
    axes: list[tuple[str, int]] = []
    for entry in input_shape.replace('"', "").split(";"):
        name, _, dims = entry.strip().rpartition(":")
        name = renamed.get(name, name)
        axes += [(name, axis) for axis, size in enumerate(dims.split(",")) if size.strip() == "-1"]
    gears = []
    for text in dynamic_dims.replace('"', "").split(";"):
        numbers = [part.strip() for part in text.split(",")]
        if len(numbers) != len(axes) or not all(part.isdecimal() for part in numbers):
            return ()
        gears.append(dict(zip(axes, map(int, numbers), strict=True)))
    return tuple(gears)


def manifest_gears(
    kind: str, gears: str, image_gears: str, patches_per_token: int
) -> tuple[AxisSizes, ...]:
    """The gears of a graph from what it was exported with: lengths separated by commas.

    A prefill has one for every length of a prompt, with rows for the largest picture, but no more
    rows than tokens, as its converter's configuration has it. A decode has one for every number of
    tokens of a step, where that is not always one.
    """
    lengths, pictures = ([int(x) for x in text.split(",") if x] for text in (gears, image_gears))
    if kind == "decode":
        return tuple({("input_ids", 1): count, ("position_ids", 2): count} for count in lengths)
    if not pictures:
        return ()
    if kind == "vision":
        patches = [rows * patches_per_token for rows in pictures]
        return tuple({("pixel_values", 0): count} for count in patches)
    if kind == "prefill":
        return tuple(
            {
                ("input_ids", 1): tokens,
                ("attention_mask", 1): tokens,
                ("position_ids", 2): tokens,
                ("image_embeds", 0): min(tokens, max(pictures)),
            }
            for tokens in lengths
        )
    return ()


def write_gears(gears: Sequence[AxisSizes]) -> str:
    """The text that goes into a session's metadata as `q35chat.gear_shapes`."""
    return ";".join(
        ",".join(f"{name}:{axis}={size}" for (name, axis), size in gear.items()) for gear in gears
    )


def describe(gears: Sequence[AxisSizes]) -> str:
    """For a message: "32, 512, 1024" where one number tells, else every number of each gear."""
    texts = [" x ".join(str(size) for size in dict.fromkeys(gear.values())) for gear in gears]
    return ", ".join(texts)
