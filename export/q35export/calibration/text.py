"""The text that a calibration reads: our own, or the user's, as the checkpoint's tokens.

`text.md` and `held_out.md` hold samples between lines of `%%%%`; in a sample `%% text` begins plain
text, and `%% system`, `%% user`, `%% thought` and `%% assistant` a part of a conversation, which
the checkpoint's own template spells. A file without such lines is one plain text.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np

from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.errors import UsageError
from q35chat.json_reader import read_bytes
from q35export.calibration.calibrate import Texts, Window
from q35export.config import TextConfig
from q35export.request import ExportRequest

BUILT_IN = Path(__file__).with_name("text.md")
HELD_OUT = Path(__file__).with_name("held_out.md")
LENGTH = 512
"""Tokens of a window."""
_LEAST = 16
_TIMES_AS_MANY = 16
_ENOUGH, _ENOUGH_HELD_OUT = 4096, 1024
"""Tokens of our own text that a wide model reads: each takes its time in every layer."""
_PART = re.compile(r"^%% (text|system|user|thought|assistant)\n", re.MULTILINE)


def text_digest(path: Path | None) -> str:
    """What tells a text from others, in a manifest; None is our own. Raises UsageError for a file
    that cannot be read."""
    return hashlib.sha256(_read(path or BUILT_IN).encode()).hexdigest()[:12]


def _read(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except ValueError as error:
        raise UsageError(f"cannot read the calibration text {path}: {error}") from error


def read_texts(request: ExportRequest, checkpoint: Path, config: TextConfig) -> Texts:
    """What an export of `request` reads of the calibration text, our own unless it names one, and
    of the text that is held out. Raises UsageError as `read_windows`.

    Many times as many inputs as they are wide tell a matrix no more, so a small model reads less; a
    wide one reads as many as it is wide, and a text that the user chose to that many times.
    """
    widest = max(config.intermediate_size, config.value_width, config.hidden_size)

    def some(path: Path, most: int) -> list[Window]:
        found = read_windows(path, checkpoint, config.vocab_size)
        return found[:: max(1, len(found) * LENGTH // most)]

    most = _TIMES_AS_MANY * widest
    calibration: list[Window] = []
    if request.rounding == "calibrated" and request.calibration is not None:
        calibration = some(request.calibration, most)
    elif request.rounding == "calibrated":
        calibration = some(BUILT_IN, min(most, max(_ENOUGH, widest)))
    return Texts(calibration, some(HELD_OUT, min(2 * widest, _ENOUGH_HELD_OUT)))


def read_windows(path: Path, checkpoint: Path, vocabulary: int) -> list[Window]:
    """The text as windows of at most `LENGTH` of the first `vocabulary` tokens. Raises UsageError
    for a file that cannot be read or is too short."""
    tokenizer = ChatTokenizer(checkpoint)
    ids: list[int] = []
    for sample in re.split(r"^%%%%\n", _read(path), flags=re.MULTILINE):
        found = tokenizer.encode(_spelled(sample, tokenizer))
        ids += (token for token in found if token < vocabulary)
    cut = [np.array(ids[start : start + LENGTH]) for start in range(0, len(ids), LENGTH)]
    kept = [window for window in cut if len(window) >= _LEAST]
    if not kept:
        raise UsageError(
            f"the calibration text {path} has {len(ids)} tokens: give at least {_LEAST}, better "
            "some thousands"
        )
    return [Window(window, np.tile(np.arange(len(window)), (3, 1))) for window in kept]


def _spelled(sample: str, tokenizer: ChatTokenizer) -> str:
    _, *parts = _PART.split(sample)
    if not parts:
        return sample
    if parts[0] == "text":
        return parts[1]
    messages: list[dict[str, str]] = []
    thought = ""
    for role, said in zip(parts[::2], parts[1::2], strict=True):
        if role == "thought":
            thought = said.strip()
            continue
        message = {"role": role, "content": said.strip()}
        if thought:
            message["reasoning_content"], thought = thought, ""
        messages.append(message)
    return tokenizer.render(messages, generation_prompt=False, thinking=True)
