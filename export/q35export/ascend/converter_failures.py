"""What a converter's log says went wrong, and what to do about it. Pure text."""

from __future__ import annotations

import re

DISK_FULL = "the disk is full: free space beside the bundle and run the command again"

_NO_MEMORY = (
    "the converter ran out of memory, it needs two to four times the weights: close other programs "
    "or add swap"
)
_KILLED = (-9, 137)
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"No space left on device|ENOSPC|errno = 28", DISK_FULL),
    (r"bad_alloc|[Cc]annot allocate memory|[Oo]ut of memory|MemoryError", _NO_MEMORY),
    (
        (
            r"Failed to create acl pass|libascend\w*\.so|libge_\w+\.so|libgraph\.so"
            r"|ASCEND_OPP_PATH|Get soc|soc version"
        ),
        "CANN or the NPU was not found: convert on the NPU host, after its set_env.sh",
    ),
    (
        (
            r"(Chunk|Recurrent)GatedDeltaRule.*(not|[Nn]o |[Uu]nsupport|[Ff]ail|[Ii]nvalid)"
            r"|(not|[Nn]o |[Uu]nsupport|[Ff]ail).*(Chunk|Recurrent)GatedDeltaRule"
            r"|EZ3003|E19010|custom op\w* .*not (found|exist)"
        ),
        (
            "a Custom operator has no kernel: install its vendor package and name it in "
            "ASCEND_CUSTOM_OPP_PATH; both delta rules from one checkout"
        ),
    ),
    (
        r"dynamicDims|dynamic_dims|input_shape.*(mismatch|not|invalid)|SetGraphInputShape",
        "the converter did not take the shapes or gears in its configuration file",
    ),
)
_UNKNOWN = re.compile(r"(?:not support onnx data type|OP TYPE:)\s*(?P<name>\w+)")
# `[ERROR] ... [file:line] Function] message`, or CANN's `[file:line]thread Function: message`
_ERROR = re.compile(
    r"^\[(?:ERROR|CRITICAL)\].*?\[[^\]]*:\d+\]\s*(?:\d+\s+)?[\w:~<>]*?[\]:]\s+(?P<message>.+)$",
    re.MULTILINE,
)
_MORE = "; for CANN's own messages set ASCEND_SLOG_PRINT_TO_STDOUT=1 and run it again"


def explain(log: str, code: int) -> str:
    """One line: what happened and what to do; from the converter's `log` and exit `code`."""
    if code in _KILLED:
        return _NO_MEMORY
    unknown = sorted(set(_UNKNOWN.findall(log)))
    if unknown == ["Custom"]:
        return "this converter has no Custom operators: use MindSpore Lite 2.7 or newer"
    if unknown:
        return (
            f"this converter does not know {', '.join(unknown)}: use MindSpore Lite 2.7 or newer, "
            "and export the bundle again if it is older than this program"
        )
    for pattern, advice in _CAUSES:
        if re.search(pattern, log):
            return advice
    if error := _ERROR.search(log):
        return " ".join(error["message"].split()) + _MORE
    lines = [line for line in log.splitlines() if line.strip()]
    return f"exit code {code}" + (f": {lines[-1].strip()}" if lines else "") + _MORE
