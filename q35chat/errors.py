"""The one family of errors a user sees: what happened, the numbers, and what to do about it.

A message is one line. What a user sets (`Option`) and what he can do (`Remedy`) have no fixed words
here: the surface in use, the command line or the form of the screen, gives them its own with
`speak`. `cli` prints an error and exits with `exit_code`, the application draws a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import ClassVar, Final

_LARGER: Final = "or export with a larger {MAX_SEQ_LEN}"


@unique
class Option(Enum):
    """What a user sets. The value is what it is called where no surface has a name for it."""

    BITS = "the bits of a weight"
    BLOCK_SIZE = "block size"
    CALIBRATION = "the calibration text"
    COMPONENT = "component"
    CONTEXT = "context"
    CONVERTER = "the converter"
    DTYPE = "dtype"
    GEARS = "gears"
    IMAGE_GEARS = "gears of pictures"
    KERNELS = "the way of the kernels"
    MAX_SEQ_LEN = "capacity"
    MODEL = "the name of a model"
    MODELSCOPE = "ModelScope"
    MODEL_DIR = "another bundle"
    MTP = "the head for drafts"
    NO_CALIBRATE = "no calibration"
    NO_FUSED_DECODE = "the unfused decode"
    NO_FUSED_PREFILL = "the unfused prefill"
    OUT = "the folder"
    PLAIN = "the plain chat"
    PRECISION = "precision"
    PROMPT = "prompt"
    PYTHON = "the Python of CANN"
    SOURCE = "the hub"
    STATELESS_PREFILL = "the stateless prefill"
    STEP_TOKENS = "the tokens of a step"
    STREAM = "deleting the checkpoint on the way"
    TARGET = "target"
    TOKENS = "tokens"

    def __str__(self) -> str:
        """Its name on the surface in use."""
        words = _spoken.get(self, self.value)
        return words if isinstance(words, str) else words()


@unique
class Remedy(Enum):
    """What a user can do. The value says it where no surface has words for it; an error gives the
    numbers and names that stand in braces, the surface those of options."""

    ADD_COMPONENT = "export its {component} graph, too"
    ANOTHER_FOLDER = "choose another folder"
    ANOTHER_NETWORK = (
        "check the network, set HF_ENDPOINT to a mirror, use {MODELSCOPE}, or give a local folder"
    )
    ANOTHER_PRECISION = "leave it out, or choose another {PRECISION}"
    ANOTHER_REVISION = "check the revision"
    ANOTHER_TARGET = "leave it out, or add {TARGET} {target}"
    ASK_MORE_OR_EXPORT = "ask at more length, with pictures first, or export the model with q35chat"
    COPY_CONFIG = "copy the config.json of the Qwen3.5 checkpoint"
    CORRECT_FILE = "correct the file, or take it from the original checkpoint"
    DEVICE_IS_FULL = "the device has no memory left: let its graphs take turns, or free the NPU"
    DOWNLOAD_AGAIN = "download the checkpoint again"
    EMPTY_FOLDER = "choose another folder, or empty the folder yourself"
    EXPORT_AGAIN = "export its model into this folder again, in place of it"
    EXPORT_CHECKPOINT = "export it first"
    EXPORT_FP16 = "export the bundle again with {DTYPE} fp16"
    EXPORT_FP32 = "export with {DTYPE} fp32"
    EXPORT_WITH_HEAD = "export the bundle again, with {MTP}"
    FEWER_GEARS = "export with fewer {GEARS} or {IMAGE_GEARS}"
    FOLDER_INSIDE = "give a folder inside it, such as {folder}"
    FREE_SPACE = "free {missing} or choose another folder"
    HEAD_OR_AUTO = "export it with its head for drafts, or leave the choice to the program"
    LARGER_CAPACITY = "export with a larger {MAX_SEQ_LEN}"
    LARGER_CAPACITY_TO_COMPARE = "export with {MAX_SEQ_LEN} {slots} or more to compare"
    LARGER_CAPACITY_OR_SMALLER_GEARS = "give a larger {MAX_SEQ_LEN} or smaller gears"
    MAKE_AGAIN = "make it again from its checkpoint"
    MEASURE_LESS_CONTEXT = f"use {{CONTEXT}} {{slots}} or less, fewer {{TOKENS}}, {_LARGER}"
    MEASURE_LESS_PROMPT = f"use {{PROMPT}} {{slots}} or less, {_LARGER}"
    MEASURE_LESS_TOKENS = f"use {{TOKENS}} {{slots}} or less, {_LARGER}"
    MEASURE_THE_SAME = "use the same {PROMPT} and {CONTEXT}"
    MORE_GEARS = "pad to one, or export with more {GEARS}"
    MORE_PICTURE_TOKENS = "allow more tokens for a picture"
    MOVE_AWAY = "move it away or choose another folder"
    NAME_A_BUNDLE = "export one with {command}, or name a bundle"
    NAME_A_RESULT = "name a file that a measurement was written to"
    NO_COMPARISON = "close other programs, or export without a comparison"
    ONE_GRAPH = "export it with a gear of one token, without {STATELESS_PREFILL}"
    OTHER_GEARS = "use smaller pictures, or export with other {GEARS} and {IMAGE_GEARS}"
    REPLACE_OR_ANOTHER_FOLDER = "replace it or choose another folder"
    REPLACE_WHOLE = "export all components, in place of it"
    SHORTEN = f"shorten it {_LARGER}"
    SHORTEN_FOR_SERVER = "shorten it, or start the server with more context"
    SHORTEN_WITH_PICTURES = f"shorten it, use fewer or smaller pictures {_LARGER}"
    SMALLER_PICTURES = "allow fewer tokens for a picture, or export with larger gears"
    SWAP_OR_FREE = "let its graphs take turns, or free the NPU"
    TARGET = "export with {TARGET} {target}"
    UPDATE = "update q35chat"
    WHOLE_BUNDLE = "use {COMPONENT} all"
    WITHOUT_HEAD = "export without {MTP}"
    WITH_HEAD = "they can be exported, too"

    def words(self, **facts: object) -> str:
        """What to do, as the surface in use says it; empty where it offers that by itself."""
        words = _spoken.get(self, self.value)
        if not isinstance(words, str):
            return words(**facts)
        return words.format(**facts, **{option.name: option for option in Option})


Words = Mapping[Option | Remedy, str | Callable[..., str]]
"""What a surface calls options and remedies: a text with facts in braces, or what makes it."""

_spoken: Final[dict[Option | Remedy, str | Callable[..., str]]] = {}


def speak(words: Words) -> None:
    """Use the words of a surface from now on, in every thread."""
    _spoken.clear()
    _spoken.update(words)


class Q35Error(Exception):
    """A failure with a message written for the user: `what` happened, with its numbers, and the
    `remedy`, whose words take the `facts`. A `what` that ends with a colon leads to the remedy."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str = "", remedy: Remedy | None = None, **facts: object) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.facts = facts

    def __str__(self) -> str:
        """One line in the words of the surface in use."""
        advice = self.remedy.words(**self.facts) if self.remedy else ""
        if not advice:
            return self.what.removesuffix(":")
        return f"{self.what} {advice}" if self.what.endswith(":") else f"{self.what}; {advice}"


class UsageError(Q35Error):
    """The command or its options are wrong."""

    exit_code: ClassVar[int] = 2


class OccupiedError(UsageError):
    """Another bundle stands where one should be written; it is replaced only when asked to."""


class CheckpointError(Q35Error):
    """The Hugging Face checkpoint is missing, incomplete or not a Qwen3.5 model."""


class BundleError(Q35Error):
    """The exported bundle is missing, damaged, or written for another version."""


class ExportError(Q35Error):
    """The export cannot be done or finished."""


class PictureError(Q35Error):
    """A picture cannot be read or used."""


class FileError(Q35Error):
    """A file whose text should go into a question cannot be read or used."""


class CapacityError(Q35Error):
    """The prompt does not fit the KV slots that the model has."""


class RuntimeFailure(Q35Error):  # noqa: N818  (RuntimeError is taken)
    """The graph runtime is missing or failed while it ran."""


class EndpointError(Q35Error):
    """The server that answers cannot be reached, refuses, or says what nobody can use."""


class ScreenError(Q35Error):
    """The application on the screen ended by a mistake of its own."""


class OutputError(Q35Error):
    """A result cannot be written to its file."""


class StoreError(Q35Error):
    """The conversation store cannot be opened, read or written."""
