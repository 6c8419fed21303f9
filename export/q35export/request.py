"""What an export is asked to do and what it answers: plain values, nothing heavy imported."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from q35chat.errors import Option, Remedy, UsageError
from q35chat.user_input import MIN_CAPACITY

Precision = Literal["fp32", "int8", "int4", "int4-exact", "w8a8"]
DType = Literal["fp16", "fp32"]
Rounding = Literal["nearest", "turned", "calibrated"]
ExportStatus = Literal["exported", "up-to-date", "planned"]

DEFAULT_MODEL = "Qwen/Qwen3.5-4B"
DEFAULT_CAPACITY = 2048
DEFAULT_PRECISION: Precision = "int4"
DEFAULT_IMAGE_GEARS = (16, 64, 256)

COMPONENTS: dict[str, tuple[str, ...]] = {
    "cpu": ("vision", "text"),
    "ascend-310p": ("vision", "prefill", "decode"),
}
TARGETS = tuple(COMPONENTS)
COMPONENT_CHOICES = ("all", *dict.fromkeys(name for names in COMPONENTS.values() for name in names))
DTYPES: tuple[DType, ...] = ("fp16", "fp32")
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int4")
PRESETS: tuple[Precision, ...] = ("fp32", "int8", "int4-exact", "int4")
W8A8: Precision = "w8a8"
"""Weights and inputs of projections in int8, which an NPU multiplies."""
USUAL_BITS, EXACT_BITS = 4.75, 6.0
FEWEST_BITS, MOST_BITS = 4.25, 8.0
BLOCK_SIZES = (32, 64, 128)
SOURCES = ("huggingface", "modelscope")
_DEVICES = Path("/dev")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The options of `q35chat export`.

    `model` is a folder or a hub id; `target` None means: the best for this machine;
    `max_seq_len` is the capacity in KV slots. `precision` None is the default of the target:
    "ascend-310p" has `dtype` then and no other but "w8a8", which the others lack. `calibration` is
    the text to calibrate with (None: our own). For "cpu" are `block_size` (weights that share a
    scale where they are quantised; None: as suits each matrix), `mtp` (export the checkpoint's head
    for drafts, too), `calibrate` (quantise for the inputs that the model really sees, in minutes
    instead of seconds), `bits` (what a weight of the layers takes on average, its scale included,
    where some take more than others; None: as the precision or `block_size` has it) and `stream`
    (delete the checkpoint's weight files once they are consumed); for "ascend-310p" the options
    from `dtype` to `step_tokens`, as its `AscendOptions` describe them. No option: `pictures` is
    False where the model sees none, `dense` where it has experts.
    """

    model: str = DEFAULT_MODEL
    out: Path = Path("out")
    source: str = "huggingface"
    revision: str | None = None
    target: str | None = None
    precision: Precision | None = None
    max_seq_len: int = DEFAULT_CAPACITY
    component: str = "all"
    force: bool = False
    dry_run: bool = False
    dtype: DType = "fp16"
    gears: tuple[int, ...] = ()
    image_gears: tuple[int, ...] = DEFAULT_IMAGE_GEARS
    fused_prefill: bool = True
    fused_decode: bool = True
    stateless_prefill: bool = False
    step_tokens: int = 1
    mtp: bool = False
    block_size: int | None = None
    calibrate: bool = True
    calibration: Path | None = None
    bits: float | None = None
    stream: bool = False
    pictures: bool = True
    dense: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError for a choice that does not exist."""
        self._check_choices()
        self._check_weights()
        if self.max_seq_len < MIN_CAPACITY:
            raise UsageError(
                f"{Option.MAX_SEQ_LEN} must be at least {MIN_CAPACITY}, found {self.max_seq_len}: "
                "a question of one word takes up to 16 slots, and the answer its own"
            )

    def _check_choices(self) -> None:
        _one_of(Option.SOURCE, self.source, SOURCES)
        _one_of(Option.PRECISION, self.stored_as, (*PRESETS, W8A8))
        _one_of(Option.DTYPE, self.dtype, DTYPES)
        choices = COMPONENT_CHOICES
        if self.target is not None:
            _one_of(Option.TARGET, self.target, TARGETS)
            choices = ("all", *COMPONENTS[self.target])
        of = "" if self.target is None else f" of target {self.target}"
        _one_of(f"{Option.COMPONENT}{of}", self.component, choices)
        if self.mtp and self.component == "vision":
            raise UsageError(
                f"{Option.MTP} belongs to the text component, found {Option.COMPONENT} vision"
            )

    def _check_weights(self) -> None:
        """How they are to be stored."""
        if self.block_size not in {None, *BLOCK_SIZES}:
            sizes = ", ".join(map(str, BLOCK_SIZES))
            raise UsageError(f"{Option.BLOCK_SIZE} must be one of {sizes}, found {self.block_size}")
        if self.block_size is not None and self.stored_as == "fp32":
            raise UsageError(
                f"{Option.BLOCK_SIZE} {self.block_size} is for int8 and int4; fp32 weights share "
                "no scale:",
                Remedy.ANOTHER_PRECISION,
            )
        if self.w8a8 and not self.calibrate:
            raise UsageError(
                f"{W8A8} takes the scales of its inputs from a calibration; drop "
                f"{Option.NO_CALIBRATE}"
            )
        if self.calibration is not None and self.rounding != "calibrated":
            raise UsageError(
                f"{Option.CALIBRATION} is for {W8A8}, and for int4 that is calibrated, found "
                f"{self.stored_as} that "
                f"is {'not rounded' if self.stored_as == 'fp32' else 'rounded to nearest'}:",
                Remedy.ANOTHER_PRECISION,
            )
        if self.bits is not None and self.stored_as != "int4":
            raise UsageError(
                f"{Option.BITS} {self.bits:g} is for int4, found {self.stored_as}:",
                Remedy.ANOTHER_PRECISION,
            )
        if self.bits is not None and not FEWEST_BITS <= self.bits <= MOST_BITS:
            raise UsageError(
                f"{Option.BITS} must be {FEWEST_BITS:g} to {MOST_BITS:g}, found {self.bits:g}"
            )
        if self.stream and self.stored_as == "fp32":
            raise UsageError(
                f"{Option.STREAM} is for int8 and int4, which are made layer by layer, found fp32:",
                Remedy.ANOTHER_PRECISION,
            )

    @property
    def stored_as(self) -> Precision:
        """The precision of a bundle for the CPU, or that of the NPU's in int8."""
        return self.precision or DEFAULT_PRECISION

    @property
    def w8a8(self) -> bool:
        """Whether an NPU is to multiply in int8."""
        return self.precision == W8A8

    @property
    def budget(self) -> float | None:
        """Bits that a weight may take on average, where they are spent where they count."""
        if self.stored_as == "int4-exact":
            return EXACT_BITS
        is_told = self.bits is not None or self.block_size is not None
        if is_told or self.stored_as != "int4" or self.rounding != "calibrated" or not self.dense:
            return self.bits
        return USUAL_BITS

    @property
    def rounding(self) -> Rounding:
        """How the decoder's weights are rounded: "turned" to nearest in a turned residual stream,
        "calibrated" in it with errors fed on or, of an NPU in int8, with inputs that were seen."""
        if self.stored_as == "fp32" or not self.calibrate:
            return "nearest"
        return "turned" if self.stored_as == "int8" else "calibrated"

    @property
    def runs_on(self) -> str:
        """The target; the CPU where none was chosen."""
        return self.target or "cpu"

    @property
    def components(self) -> tuple[str, ...]:
        """The components to build, in the order they are built."""
        names = COMPONENTS[self.runs_on] if self.component == "all" else (self.component,)
        return tuple(name for name in names if self.pictures or name != "vision")

    @property
    def weights(self) -> tuple[str, ...]:
        """The groups of tensors that are read, as `expected_tensors` names them."""
        return (*self.components, "mtp") if self.mtp else self.components


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of the bundle, its path relative to it, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ChatMemory:
    """Bytes the chat will hold: weights as exported, conv and recurrent states (two buffers
    each), and the KV cache."""

    weights: int
    states: int
    kv_cache: int

    @property
    def total(self) -> int:
        """The sum, in bytes."""
        return self.weights + self.states + self.kv_cache


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export would write and what the result will need.

    `files` are written, `kept` stay as they are in the existing bundle.
    """

    out: Path
    files: tuple[PlannedFile, ...]
    kept: tuple[PlannedFile, ...]
    memory: ChatMemory

    @property
    def total(self) -> int:
        """Bytes to write."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """How an export ended.

    `checkpoint` is the local folder that was read; None where an up-to-date bundle made
    finding it needless. `plan` is None only for "up-to-date".
    """

    status: ExportStatus
    out: Path
    message: str
    checkpoint: Path | None = None
    plan: ExportPlan | None = field(default=None, repr=False)


def _one_of(option: Option | str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}, found {value!r}")


def parse_gears(option: Option, text: str) -> tuple[int, ...]:
    """Lengths of a comma-separated list, ascending; UsageError for anything else."""
    try:
        gears = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"{option} must be lengths separated by commas, such as 32,512; found {text!r}"
        ) from None
    check_gears(option, gears)
    return gears


def check_gears(option: Option, gears: tuple[int, ...]) -> None:
    """Raise UsageError unless the lengths are positive and ascend."""
    wrong = next((gear for gear in gears if gear < 1), None)
    if wrong is not None:
        raise UsageError(f"{option} must be positive lengths, found {wrong}")
    if list(gears) != sorted(set(gears)):
        shown = ",".join(map(str, gears))
        raise UsageError(f"{option} must ascend and name no length twice, found {shown}")


def default_target(devices: Path = _DEVICES) -> str:
    """ "ascend-310p" where an NPU's device file or tool is found, else "cpu"."""
    has_device = any(
        path.name.removeprefix("davinci").isdecimal() for path in devices.glob("davinci*")
    )
    return "ascend-310p" if has_device or shutil.which("npu-smi") else "cpu"
